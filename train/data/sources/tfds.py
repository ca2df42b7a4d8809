"""TensorFlow datasets, read without TensorFlow.

A set in $TFDS_DATA_DIR (by default ~/tensorflow_datasets) is read from there, even if its builder cannot be imported:
any program may prepare a set of one's own. Any other set is downloaded and prepared first.

TFDS is imported inside functions (M27: half a second). It logs, prints and retries a lot: its output is suppressed
here, and its errors become one sentence.
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from train import UserError
from train.data.sources.features import converter, without_media
from train.data.sources.files import Row
from train.files.suppress_output import suppress_output

if TYPE_CHECKING:
    from tensorflow_datasets.core import DatasetBuilder
    from tensorflow_datasets.core.features import FeatureConnector

# Records that are read and decoded together.
_TOGETHER = 1024


def read(source: str) -> list[Row]:
    """`tfds:NAME[/CONFIG][:VERSION][:SPLIT]` -> rows of a TensorFlow dataset, dictionaries as in a .jsonl file.

    VERSION is three numbers or stars (2.0.0, 2.*.*). Anything else after a colon is the split, in the notation of
    TFDS: `train` (the default), `train[:10%]`, `train+test`. Text is str; bytes that are not UTF-8 become U+FFFD. A
    class label is its name, or None where it is hidden (-1). A sequence is a list, a sequence of dictionaries a
    dictionary of lists (`answers` of SQuAD). Images, audio and video are left out. Raises UserError for a set or a
    split that is unknown, unavailable or needs TensorFlow.
    """
    rows = list(stream(source))
    if not rows:
        raise UserError(f"{source} holds no rows of text, labels or numbers; choose another split or set")
    return rows


def stream(source: str) -> Iterator[Row]:
    """The rows of `read`, of which a few are in memory at a time; none of an empty set. Raises UserError as it does."""
    features, decoded = _examples(source, without_media)
    convert = converter(features) if features else dict
    return map(convert, decoded)


def examples(
    source: str, keep: "Callable[[FeatureConnector], FeatureConnector | None]"
) -> "tuple[FeatureConnector | None, list[Row]]":
    """The features of a set that `keep` leaves of all, or None, and the decoded examples of a split with these alone.

    Raises UserError as `read` does.
    """
    features, decoded = _examples(source, keep)
    return features, list(decoded)


def _examples(
    source: str, keep: "Callable[[FeatureConnector], FeatureConnector | None]"
) -> "tuple[FeatureConnector | None, Iterator[Row]]":
    """The same, of which some are in memory at a time."""
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
        features = keep(builder.info.features)
    return features, _decoded(records, features, name) if features else iter(())


def _decoded(records: Sequence[bytes], features: "FeatureConnector", name: str) -> Iterator[Row]:
    """The examples, some together; M26: one at a time takes 20 times as long."""
    for first in range(0, len(records), _TOGETHER):
        with _reported(name):
            places = range(first, min(first + _TOGETHER, len(records)))
            together = records.__getitems__(places)  # type: ignore[attr-defined]
            decoded = [features.deserialize_example_np(record) for record in together]
        yield from decoded


def _parse(source: str) -> tuple[str, str]:
    """`tfds:NAME:SPLIT` -> (NAME, SPLIT). A split does not look like a version; its colons stand in brackets."""
    match = re.fullmatch(r"tfds:(\w[^:\[\]\s]*(?::[\d*]+\.[\d*]+\.[\d*]+)?)(?::(.+))?", source)
    if not match:
        raise UserError(
            f"{source!r} names no TensorFlow dataset; write tfds:NAME or tfds:NAME:SPLIT, "
            "such as tfds:glue/sst2:validation"
        )
    return match[1], match[2] or "train"


def _folder() -> str:
    """The folder of all sets. TFDS itself reads the variable only once, at import."""
    return os.path.expanduser(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")


def _open(name: str) -> "DatasetBuilder":
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
        of_family = [f"{family}/{config}" for config in configs] + _prepared(family)
        raise UserError(f"tfds:{name} is unknown; {_suggestion(name, family, of_family, families)}") from error


def _suggestion(name: str, family: str, of_family: list[str], families: list[str]) -> str:
    """The sets of the same family, or the names nearest to an unknown name."""
    if of_family and len(of_family) <= 15:
        return f"known are {', '.join(of_family)}"
    suggestions = _nearest(name, of_family) if of_family else _nearest(family, [*families, *_prepared()])
    if suggestions:
        return f"did you mean {' or '.join(suggestions)}?"
    return f"known are {', '.join(of_family)}" if of_family else "https://www.tensorflow.org/datasets/catalog lists all"


def _nearest(word: str, names: list[str]) -> list[str]:
    """Up to three names that begin with a word or look like it."""
    matches = [name for name in names if name.startswith(word)]
    matches += difflib.get_close_matches(word, names, cutoff=0.5 if "/" in word else 0.6)
    return list(dict.fromkeys(matches))[:3]


def _prepared(family: str = "") -> list[str]:
    """The sets in the folder: NAME of every set, or NAME/CONFIG:VERSION of those of a family."""
    if not family:
        return [path.name for path in Path(_folder()).glob("*") if _prepared(path.name)]
    paths = sorted(path.parent for path in Path(_folder(), family).glob("**/features.json"))
    return [f"{path.parent.relative_to(_folder())}:{path.name}" for path in paths]


def _prepare(builder: "DatasetBuilder"):
    """Downloads a set and writes it as array_record, which can be read without TensorFlow (TFDS's mirror has tfrecord).

    TFDS tries a site ten times, for minutes, and waits without limit for an answer. Here it gives up after seconds.
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


def _records(builder: "DatasetBuilder", name: str, split: str) -> Sequence[bytes]:
    """The serialized examples of a split. Raises UserError for an unknown split or a format of TensorFlow."""
    from tensorflow_datasets import decode

    formats = {file_format.value for file_format in builder.info.available_file_formats()}
    if not formats & {"array_record", "parquet"}:
        raise UserError(
            f"tfds:{name} lies in {builder.data_dir} as {', '.join(formats)}, which needs TensorFlow to read; "
            "prepare it with file_format='array_record', or move that folder away to have it downloaded and prepared "
            "anew"
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
    if len(records) != size:  # parquet has no parts of a split
        raise UserError(
            f"tfds:{name}:{split} is a part of a set that can only be read whole; name a whole split: "
            f"{', '.join(splits)}"
        )
    return records


@contextlib.contextmanager
def _reported(name: str) -> Iterator[None]:
    """Suppresses output, and turns every error of TFDS into UserError: builders raise errors of all types."""
    try:
        with suppress_output("absl"):
            yield
    except UserError:
        raise
    except Exception as error:
        raise _explained(error, name) from error


def _explained(error: Exception, name: str) -> Exception:
    """The sentence for an error of TFDS, which wraps errors in errors; OSError for a full disk."""
    from requests import RequestException

    chain: list[BaseException] = [error]
    while wrapped := chain[-1].__cause__:
        chain.append(wrapped)
    for cause in chain:
        if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
            return OSError(cause.errno, cause.strerror, cause.filename)
        if isinstance(cause, RequestException | urllib.error.URLError):
            host = urllib.parse.urlparse(getattr(getattr(cause, "request", None), "url", "")).hostname or "its site"
            return UserError(
                f"tfds:{name} is not in {_folder()}, and {host} cannot be reached to download it; "
                "check the network, or prepare it elsewhere and point TFDS_DATA_DIR there"
            )
        if isinstance(cause, ImportError) and cause.name:
            module = cause.name.split(".")[0]
            return UserError(
                f"tfds:{name} cannot be prepared without {module}; pip install {module.replace('_', '-')}, "
                "or prepare it elsewhere"
            )
    reason = re.sub(r'.*builder_kwargs "{.*?}": ', "", " ".join(str(chain[-1]).split()))[:300]
    return UserError(f"tfds:{name} cannot be read: {reason or type(chain[-1]).__name__}")


@contextlib.contextmanager
def _tidy(builder: "DatasetBuilder") -> Iterator[None]:
    """After a failure, removes what TFDS leaves behind: partial downloads, empty folders, the configuration."""
    before = _left_behind(builder.name)
    try:
        yield
    except BaseException:
        if not _prepared(builder.name):
            Path(_folder(), builder.name, ".config", "metadata.json").unlink(missing_ok=True)
        for path in sorted(_left_behind(builder.name) - before, reverse=True):
            if path.is_file() and ".tmp." in str(path.relative_to(_folder())):
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        raise


def _left_behind(name: str) -> set[Path]:
    """The folder of all sets, and all files and folders of downloads and of one set."""
    root = Path(_folder())
    if not root.exists():
        return set()
    return {root, *root.glob("*"), *root.glob("downloads/**/*"), *root.glob(f"{name}/**/*")}
