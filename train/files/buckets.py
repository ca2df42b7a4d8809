"""Folders of a bucket, gs://BUCKET/PATH: paths of etils, which Orbax takes too, and what such a path has no method for.

A bucket has no folders that could be renamed: a checkpoint is there from the moment that its last file is.
"""

import contextlib
import logging
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tfm.options.json_text import Json
from train import UserError

if TYPE_CHECKING:
    from etils import epath

Folder: TypeAlias = "Path | epath.Path"

# Orbax writes it into a checkpoint of a bucket when all other files are there.
COMMITTED = "commit_success.txt"

# Seconds without a byte after which a request is sent again; gcsfs does so six times, and by itself after 300 s.
_SILENCE = 20.0

# Who speaks of a bucket: packages, and TensorStore by the words of its messages.
_PACKAGES = {"gcsfs", "google", "aiohttp", "requests", "urllib3"}
_WORDS = re.compile(r"gs://|http_response_code|CURL error|GCS")

# Words of a fault -> what it is, and what to do; the first that fits.
_FAULTS = (
    (
        r"PERMISSION_DENIED|UNAUTHENTICATED|\b40[13]\b|Forbidden|Unauthorized|Anonymous caller|[Cc]redentials",
        "your account may not read and write there",
        "give it the right, or log in (gcloud auth application-default login)",
    ),
    (
        r"RESOURCE_EXHAUSTED|\b429\b|[Qq]uota|rateLimit",
        "a quota or a rate of requests is used up",
        "raise it, or save less often (--checkpoint.every)",
    ),
    (
        r"NOT_FOUND|\b404\b|[Nn]ot ?[Ff]ound|No such|does not exist",
        "the bucket, or something in it, is absent",
        "check the name, and make the bucket",
    ),
    (
        r"UNAVAILABLE|DEADLINE_EXCEEDED|CURL|[Cc]onnect|[Rr]esolve|[Tt]imed? ?[Oo]ut|\b50[0234]\b",
        "it cannot be reached",
        "check the network",
    ),
)


def is_bucket(folder: Folder) -> bool:
    """Whether a folder is one of a bucket."""
    return not isinstance(folder, Path)


def open_folder(url: str) -> "epath.Path":
    """The folder of a URL. Raises UserError where the package for it is not installed."""
    import fsspec
    from etils import epath

    try:
        fsspec.get_filesystem_class("gs")
    except ImportError as error:
        raise UserError(f"{url} needs the package gcsfs: pip install 'tfm[gcs]'") from error
    limit_silence()
    fsspec.config.conf["gs"]["use_listings_cache"] = False  # what TensorStore writes is not in a list that fsspec keeps
    return epath.Path(url)


def limit_silence():
    """Lets gcsfs give up a request that is not answered, where it would wait for half an hour in all."""
    import fsspec

    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it logs a traceback of what it raises
    options = fsspec.config.conf.setdefault("gs", {})
    with contextlib.suppress(ImportError):  # of a file system that is not gcsfs
        from aiohttp import ClientTimeout

        options["requests_timeout"] = ClientTimeout(total=None, sock_connect=_SILENCE, sock_read=_SILENCE)


def absolute(folder: Folder) -> Folder:
    """The folder from the root on; that of a bucket is so."""
    return folder.absolute() if isinstance(folder, Path) else folder


def steps(folder: "epath.Path") -> list[int]:
    """The steps of the checkpoints of which all files are there, in order."""
    with sentences(folder):
        names = [path.parent.name for path in folder.glob(f"*/{COMMITTED}")]
    return sorted(int(name) for name in names if name.isdecimal())


def begun_steps(folder: "epath.Path") -> list[int]:
    """The steps of the checkpoints of which some files are there, in order."""
    with sentences(folder):
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
    return sorted(int(name) for name in names if name.isdecimal())


def unfinished_steps(folder: "epath.Path") -> list[int]:
    """The steps of the checkpoints of which some files are there, and some are not."""
    finished = set(steps(folder))
    return [step for step in begun_steps(folder) if step not in finished]


def remove_unfinished(folder: "epath.Path"):
    """Deletes the checkpoints of which some files are not there."""
    for step in unfinished_steps(folder):
        with sentences(folder):
            (folder / str(step)).rmtree()


def entries(folder: "epath.Path") -> dict[str, list[Json]]:
    """The size of every file, and the checksum (CRC-32C) that the bucket reports, by its name in the folder."""
    import fsspec

    system, root = fsspec.core.url_to_fs(str(folder))
    files = system.find(root, detail=True)
    return {name.removeprefix(f"{root}/"): [info["size"], info["crc32c"]] for name, info in sorted(files.items())}


def move(source: "epath.Path", target: "epath.Path"):
    """Copies a folder within its bucket to a place of which nothing stays, and deletes it."""
    import fsspec

    system, root = fsspec.core.url_to_fs(str(source))
    target.rmtree(missing_ok=True)
    system.copy(root, str(target), recursive=True)
    system.rm(root, recursive=True)


@contextlib.contextmanager
def sentences(folder: Folder) -> Iterator[None]:
    """Turns errors of a bucket into UserError; those of other folders pass."""
    try:
        yield
    except Exception as error:
        if is_bucket(folder):
            explain(error, folder)
        raise


def explain(error: Exception, folder: Folder, consequence: str = ""):
    """Raises UserError for an error that speaks of a bucket; `consequence` ends the sentence."""
    chain = [error]
    while cause := chain[-1].__cause__ or chain[-1].__context__:
        if not isinstance(cause, Exception) or cause in chain:
            break
        chain.append(cause)
    if isinstance(error, UserError) or not any(map(_speaks_of_bucket, chain)):
        return
    text = " ".join(f"{type(link).__name__}: {link}" for link in chain)
    first = (str(error).splitlines() or [type(error).__name__])[0][:200]
    unclear = (first, "check the bucket and the network")
    fault, remedy = next(((fault, remedy) for words, fault, remedy in _FAULTS if re.search(words, text)), unclear)
    raise UserError(f"{folder}: {fault}; {remedy}{consequence}") from error


def _speaks_of_bucket(error: BaseException) -> bool:
    """Whether a package that speaks to buckets made or raised an error, or its message names one."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    modules = [type(error).__module__, *(frame.f_globals.get("__name__", "") for frame in frames)]
    return any(module.partition(".")[0] in _PACKAGES for module in modules) or bool(_WORDS.search(str(error)))
