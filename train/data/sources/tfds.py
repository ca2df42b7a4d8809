"""TensorFlow datasets, read without TensorFlow.

A set that already lies in $TFDS_DATA_DIR (by default ~/tensorflow_datasets) is read from there; its builder need not
be importable, so a set of one's own is prepared once, by any program, and found by its name from then on. Any other
set is downloaded and prepared first.

TFDS is imported inside functions (M27: half a second), and no other source needs it. It logs, prints and retries a lot:
all of it is held back here, and what it raises becomes one sentence.
"""

import contextlib
import difflib
import errno
import functools
import os
import re
import sys
import urllib.error
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from train import UserError
from train.data.sources.features import converter, without_media
from train.files.suppress_output import suppress_output


def read(source: str) -> list[dict[str, Any]]:
    """`tfds:NAME[/CONFIG][:VERSION][:SPLIT]` -> the rows of a TensorFlow dataset, as dictionaries such as a line of a .jsonl file holds.

    VERSION is three numbers or stars (2.0.0, 2.*.*); anything else after a colon is the split, in the notation of
    TFDS: `train` (the default), `train[:10%]`, `train+test`. Text is str, and bytes that are not UTF-8 become U+FFFD;
    a class label is its name, or None where it is hidden (-1); numbers are Python's. A sequence is a list, a
    dictionary of features stays one, and a sequence of dictionaries is a dictionary of lists (`answers` of SQuAD).
    Images, audio and video are left out. Raises UserError for a set or a split that is unknown, cannot be had, or
    needs TensorFlow.
    """
    name, split = _parse(source)
    with _reported(name):
        builder = _open(name)
        prepared = builder.is_prepared()
    if not prepared:
        print(f"downloading and preparing tfds:{name} in {_folder()}", file=sys.stderr)
        with _reported(name), _tidy(builder):
            _prepare(builder)
    with _reported(name):
        records = _records(builder, name, split)
        features = without_media(builder.info.features)
        examples = [features.deserialize_example_np(record) for record in records] if features else []
    if not examples:
        raise UserError(f"tfds:{name}:{split} holds no rows of text, labels or numbers; choose another split or set")
    convert = converter(features)
    return [convert(example) for example in examples]


def _parse(source: str) -> tuple[str, str]:
    """`tfds:NAME:SPLIT` -> (NAME, SPLIT). A split never looks like a version, and its own colons stand in brackets."""
    found = re.fullmatch(r"tfds:(\w[^:\[\]\s]*(?::[\d*]+\.[\d*]+\.[\d*]+)?)(?::(.+))?", source)
    if not found:
        raise UserError(
            f"{source!r} names no TensorFlow dataset; write tfds:NAME or tfds:NAME:SPLIT, such as tfds:glue/sst2:validation"
        )
    return found[1], found[2] or "train"


def _folder() -> str:
    """Where sets lie. TFDS itself asks only once, when it is imported."""
    return os.path.expanduser(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")


def _open(name: str) -> Any:
    """The builder of a set. Raises UserError with the nearest names where there is none."""
    import tensorflow_datasets as tfds
    import tensorflow_datasets.text  # glue, c4, wiki40b and wmt are unknown
    import tensorflow_datasets.translate  # until these two are imported

    family, config, _ = re.fullmatch(r"([^/:]*)(?:/([^:]*))?(:.*)?", name).groups()  # type: ignore[union-attr]
    families = tfds.list_builders(with_community_datasets=False)
    configs = tfds.builder_cls(family).builder_configs if family in families else {}
    try:
        return tfds.builder(name, data_dir=_folder())
    except Exception as error:
        if not isinstance(error, tfds.core.DatasetNotFoundError) and (not config or not configs or config in configs):
            raise
        known = [f"{family}/{config}" for config in configs] + _prepared(family)
        near = (
            _nearest(name, known) if len(known) > 15 else [] if known else _nearest(family, [*families, *_prepared()])
        )
        listed = f"known are {', '.join(known)}" if known else "https://www.tensorflow.org/datasets/catalog lists all"
        raise UserError(
            f"tfds:{name} is unknown; " + (f"did you mean {' or '.join(near)}?" if near else listed)
        ) from error


def _nearest(word: str, known: list[str]) -> list[str]:
    """Up to three names that begin with a word, or look like it."""
    begun = [name for name in known if name.startswith(word)]
    return list(dict.fromkeys(begun + difflib.get_close_matches(word, known, cutoff=0.5 if "/" in word else 0.6)))[:3]


def _prepared(family: str = "") -> list[str]:
    """What lies in the folder: NAME of every set, or NAME/CONFIG:VERSION of one."""
    if not family:
        return [path.name for path in Path(_folder()).glob("*") if _prepared(path.name)]
    found = sorted(path.parent for path in Path(_folder(), family).glob("**/features.json"))
    return [f"{path.parent.relative_to(_folder())}:{path.name}" for path in found]


def _prepare(builder: Any):
    """Downloads a set and writes it as array_record, which needs no TensorFlow to read; TFDS's own mirror holds tfrecord only.

    TFDS tries a site ten times, for minutes, and waits for ever for one that does not answer. Here it gives up after
    seconds.
    """
    from tensorflow_datasets import download
    from tensorflow_datasets.core.download import downloader

    retries, opener = downloader.MAX_RETRIES, downloader._open_url
    downloader.MAX_RETRIES, downloader._open_url = 2, functools.partial(opener, timeout=(5, 60))
    try:
        builder.download_and_prepare(
            file_format="array_record", download_config=download.DownloadConfig(try_download_gcs=False)
        )
    finally:
        downloader.MAX_RETRIES, downloader._open_url = retries, opener


def _records(builder: Any, name: str, split: str) -> Sequence[bytes]:
    """The serialized examples of a split. Raises UserError where there is no such split, or only TensorFlow reads its format."""
    from tensorflow_datasets import decode

    formats = {each.value for each in builder.info.available_file_formats()}
    if not formats & {"array_record", "parquet"}:
        raise UserError(
            f"tfds:{name} lies in {builder.data_dir} as {', '.join(formats)}, which needs TensorFlow to read; "
            "prepare it with file_format='array_record', or move that folder away to have it downloaded and prepared anew"
        )
    splits = builder.info.splits
    try:
        size = splits[split].num_examples
    except Exception as error:
        raise UserError(
            f"tfds:{name} has no split {split!r}; it has {', '.join(splits)}, or parts such as 'train[:10%]'"
        ) from error
    if not size:
        return []
    records = builder.as_data_source(split, deserialize_method=decode.DeserializeMethod.RAW_BYTES)
    if len(records) != size:  # parquet knows no parts
        raise UserError(
            f"tfds:{name}:{split} is a part of a set that can only be read whole; name a whole split: {', '.join(splits)}"
        )
    return records.__getitems__(range(size))  # all at once; M26: one at a time takes 20 times as long


@contextlib.contextmanager
def _reported(name: str) -> Iterator[None]:
    """Silence, in which what TFDS raises becomes UserError, whatever its type: its builders are the code of many strangers."""
    try:
        with suppress_output("absl"):
            yield
    except UserError:
        raise
    except Exception as error:
        raise _explained(error, name) from error


def _explained(error: Exception, name: str) -> Exception:
    """The sentence for what TFDS raised, which wraps errors in errors; a full disk stays what it is."""
    from requests import RequestException

    chain: list[BaseException] = [error]
    while cause := chain[-1].__cause__:
        chain.append(cause)
    for each in chain:
        if isinstance(each, OSError) and each.errno == errno.ENOSPC:
            return OSError(each.errno, each.strerror, each.filename)
        if isinstance(each, RequestException | urllib.error.URLError):
            host = urllib.parse.urlparse(getattr(getattr(each, "request", None), "url", "")).hostname or "its site"
            return UserError(
                f"tfds:{name} is not in {_folder()}, and {host} cannot be reached to download it; "
                "check the network, or prepare it elsewhere and point TFDS_DATA_DIR there"
            )
        if isinstance(each, ImportError) and each.name:
            module = each.name.split(".")[0]
            return UserError(
                f"tfds:{name} cannot be prepared without {module}; pip install {module.replace('_', '-')}, or prepare it elsewhere"
            )
    reason = (
        re.sub(r'.*builder_kwargs "{.*?}": ', "", " ".join(str(chain[-1]).split()))[:300] or type(chain[-1]).__name__
    )
    return UserError(f"tfds:{name} cannot be read: {reason}")


@contextlib.contextmanager
def _tidy(builder: Any) -> Iterator[None]:
    """After a failure, removes what TFDS leaves: begun downloads, empty folders, the note of a default configuration of nothing."""
    root = Path(_folder())

    def found():
        return (
            {root, *root.glob("*"), *root.glob("downloads/**/*"), *root.glob(f"{builder.name}/**/*")}
            if root.exists()
            else set()
        )

    before = found()
    try:
        yield
    except BaseException:
        if not _prepared(builder.name):
            (root / builder.name / ".config" / "metadata.json").unlink(missing_ok=True)
        for path in sorted(found() - before, reverse=True):
            if path.is_file() and ".tmp." in str(path.relative_to(root)):
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        raise
