"""The cache: results that are expensive to make and depend on content alone, under a hash of that content."""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO


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


def atomic_write(path: Path, data: bytes):
    """Writes a whole file or none."""
    with atomic_open(path) as file:
        file.write(data)


@contextlib.contextmanager
def atomic_open(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name when it is complete, even if two processes write it at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise
