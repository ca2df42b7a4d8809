"""The text of a file, its lines and its documents.

A line ends with a line feed, a carriage return, or both; no other character ends one.
"""

import io
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO

from tfm.options import json_text
from train import UserError
from train.data.sources.opening import DECOMPRESSED, sentences, without_marks
from train.devices import cpu
from train.settings.gate import user_errors

# A text is in memory as bytes and as characters, and once more as rows: it may have a quarter of the memory.
MAX_SHARE = 0.25

# What to do about a text that is larger.
TOO_LARGE = "take a part of it, or make a store of plain text with python -m train.prepare, and train on that"

# Text becomes 2 to 10 times smaller in a .gz; one that grows more, to this size in bytes, was made to fill the memory.
MAX_GROWTH, SMALL = 50, 256 << 20


def read_text(path: Path, lone_returns: bool = True) -> str:
    """The text of a file, whose lines end with a line feed; without `lone_returns` a carriage return alone is text."""
    compression = path.suffix if path.suffix in DECOMPRESSED else ""
    with sentences(str(path), compression), path.open("rb") as file:
        data = _decompressed(file, path) if compression else _limited(file, path)
    with user_errors():
        text = json_text.decode_text(data, str(path))
    text = text.replace("\r\n", "\n")
    return without_marks(text.replace("\r", "\n") if lone_returns else text)


def _limited(file: IO[bytes], path: Path) -> bytes:
    """The bytes of a file. Raises UserError where they are more than memory has room for."""
    limit = MAX_SHARE * cpu.memory_bytes()
    size = file.seek(0, io.SEEK_END)
    if size > limit:
        raise UserError(
            f"{path} has {size / 1e9:.1f} GB, and a text may have {limit / 1e9:.1f} GB, a quarter of the memory here; "
            f"{TOO_LARGE}"
        )
    file.seek(0)
    return file.read()


def _decompressed(file: IO[bytes], path: Path) -> bytes | bytearray:
    """The content of a compressed file, in pieces. Raises UserError where it is more than memory has room for."""
    limit = MAX_SHARE * cpu.memory_bytes()
    content = bytearray()
    with DECOMPRESSED[path.suffix](file) as pieces:
        while piece := pieces.read(1 << 20):
            content += piece
            if len(content) > limit:
                raise UserError(
                    f"{path} holds more than {limit / 1e9:.1f} GB, a quarter of the memory here; {TOO_LARGE}"
                )
            if len(content) > max(SMALL, MAX_GROWTH * file.tell()):
                raise UserError(
                    f"{path} grows more than {MAX_GROWTH} times, as no text does; "
                    "decompress it yourself if you trust it"
                )
    return content


def check_total(source: str, sizes: Iterable[int]) -> None:
    """Raises UserError where the files of a source are together more than memory has room for, in bytes."""
    size, limit = sum(sizes), MAX_SHARE * cpu.memory_bytes()
    if size > limit:
        raise UserError(
            f"the files of {source} have {size / 1e9:.1f} GB, and a text may have {limit / 1e9:.1f} GB, a quarter of "
            f"the memory here; {TOO_LARGE}"
        )


def lines_of(text: str) -> list[str]:
    """The lines of a text that `read_text` has read, with empty ones; the last may end without a line feed."""
    return text.removesuffix("\n").split("\n")


def split_text(text: str, split: str) -> list[str]:
    """The documents of a text, as --data.split says: the whole of it, its lines, or what blank lines are between."""
    return _SPLITS[split](text)


_SPLITS: dict[str, Callable[[str], list[str]]] = {
    "file": lambda text: [text],
    "line": lines_of,
    "blank-line": lambda text: [part for part in re.split(r"\n\s*\n", text) if part.strip()],
}
