"""The cache: results that are expensive to make and depend on content alone, under a hash of that content.

Every entry ends with its checksum. An entry that is damaged is as good as absent.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import mmap
import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")

PART = ".part-"  # begins the name of an entry that is not complete
_CRC = 4  # bytes of a CRC-32


def cache_dir() -> Path:
    """$TFM_CACHE, or ~/.cache/tfm."""
    return Path(os.environ.get("TFM_CACHE") or Path.home() / ".cache" / "tfm")


def digest(*groups: Iterable[str]) -> str:
    """A hash of groups of texts; it includes their lengths, so that different groups never join to the same bytes."""
    state = hashlib.sha256()
    for group in groups:
        for text in group:
            data = text.encode("utf-8", "surrogatepass")
            state.update(len(data).to_bytes(8, "little") + data)
        state.update(b"end")
    return state.hexdigest()[:16]


def read(path: Path) -> memoryview | None:
    """The content of an entry, mapped into memory; None if there is none, or a damaged one."""
    try:
        with path.open("rb") as file:
            mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (FileNotFoundError, ValueError):  # absent or empty
        return None
    content, crc = mapped[:-_CRC], mapped[-_CRC:]
    return content if zlib.crc32(content).to_bytes(_CRC, "little") == crc else None


def json_value(name: str, make: Callable[[], Value], companions: Iterable[Path] = ()) -> Value:
    """The value of an entry NAME.json, as JSON gives it back: tuples become lists. `make()` makes an absent one, and
    its `companions`, other entries: where one of these is gone, all are made again."""
    path = cache_dir() / f"{name}.json"
    if not all(entry.exists() for entry in companions):
        path.unlink(missing_ok=True)
    return json.loads(bytes(entry(path, lambda: write(path, json.dumps(make()).encode()))))


def entry(path: Path, make: Callable[[], object]) -> memoryview:
    """The content of an entry, mapped into memory. `make()` writes an absent one, while others of this machine that
    need it wait. Raises OSError for an entry that is damaged as soon as it is written."""
    content = read(path)
    if content is None:
        with _locked(path):
            if read(path) is None:
                make()
            content = read(path)
    if content is None:
        raise OSError(errno.EIO, "damaged as soon as it was written", str(path))
    return content


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Waits for the process of this machine that makes this entry, if there is one that lives."""
    lock = path.with_name(f"{PART}lock-{path.name}")
    lock.parent.mkdir(parents=True, exist_ok=True)
    is_locked = False
    while not is_locked:
        with lock.open("wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print("waiting for another process that makes the same entry of the cache", file=sys.stderr)
                fcntl.flock(file, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):  # that process has removed the file
                is_locked = os.path.samestat(os.fstat(file.fileno()), lock.stat())
            if is_locked:
                try:
                    yield
                finally:
                    lock.unlink()


def write(path: Path, data: bytes | memoryview):
    """Makes an entry, whole or not at all."""
    with writer(path) as append:
        append(data)


@contextlib.contextmanager
def writer(path: Path) -> Iterator[Callable[[bytes | memoryview], None]]:
    """A function that appends to an entry, which takes its name, and its checksum, when it is complete.

    Of two processes that make it at once, the first one's stays: the second may have drawn other random numbers.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=PART)
    crc = 0
    try:
        with os.fdopen(handle, "wb") as file:

            def append(data: bytes | memoryview):
                nonlocal crc
                crc = zlib.crc32(data, crc)
                file.write(data)

            yield append
            file.write(crc.to_bytes(_CRC, "little"))
        if read(path) is None:
            os.replace(part, path)
        else:
            os.unlink(part)
    except BaseException:
        os.unlink(part)
        raise
