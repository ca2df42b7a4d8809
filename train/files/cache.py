"""The cache: results that are expensive to make and depend on content alone, under a hash of that content.

Every entry ends with its checksum. An entry that is damaged is as good as absent.
"""

import contextlib
import hashlib
import json
import mmap
import os
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
    content = read(path)
    if content is None:
        content = memoryview(json.dumps(make()).encode())
        write(path, content)
    return json.loads(bytes(content))


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
