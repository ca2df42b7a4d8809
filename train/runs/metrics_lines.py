"""metrics.jsonl: an object a line. Every checkpoint notes how many bytes it had, and their checksum."""

import dataclasses
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict

from tfm.options.choices import Range, check_object
from tfm.options.json_text import decode_text, parse_object
from train.files.strict_json import json_text
from train.runs import run_folder
from train.settings.gate import check_complete
from train.settings.limits import MAX_STEPS

# Metrics that plots and comparisons read.
_NUMBERS = dict.fromkeys(("loss", "rate"), float)


class _Line(TypedDict):
    """What every line has."""

    step: Annotated[int, Range(0, MAX_STEPS)]
    split: str


@dataclasses.dataclass
class Written:
    """The bytes that a run has written to metrics.jsonl: their number, and their CRC-32."""

    size: int = 0
    crc: int = 0

    def add(self, data: bytes):
        """More bytes were written."""
        self.size, self.crc = self.size + len(data), zlib.crc32(data, self.crc)

    def are(self, data: bytes) -> bool:
        """Whether these are the bytes."""
        return (len(data), zlib.crc32(data)) == (self.size, self.crc)


class MetricsFile:
    """metrics.jsonl of a run that goes on after step `start`. Lines of later steps are dropped: it writes them again.

    `written` is what was written until then, and grows with every line. Logs lines that are damaged.
    """

    def __init__(self, path: Path, start: int, written: Written, log: Callable[[str], None]):
        content = path.read_bytes() if path.exists() else b""
        self._written = written
        if written.are(content[: written.size]):
            if len(content) > written.size:
                os.truncate(path, written.size)
        else:
            kept = _whole_lines(path, content, start, log)
            run_folder.write(path, kept.decode())
            written.size, written.crc = 0, 0
            written.add(kept)
        self._file = path.open("ab")

    def __enter__(self) -> "MetricsFile":
        return self

    def __exit__(self, *error):
        self._file.close()

    def write(self, line: Mapping[str, object]):
        """A line; it is with the system when this returns."""
        data = (json_text(line) + "\n").encode()
        self._file.write(data)
        self._file.flush()
        self._written.add(data)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of metrics.jsonl; damaged ones are left out."""
    for line in path.read_bytes().split(b"\n"):
        if (metrics := _parsed(line)) is not None:
            yield metrics


def _whole_lines(path: Path, content: bytes, start: int, log: Callable[[str], None]) -> bytes:
    """The lines up to a step of a damaged file; the log says what is wrong."""
    lines = [(place, line, _parsed(line)) for place, line in enumerate(content.split(b"\n"), 1) if line]
    damaged = [place for place, _, metrics in lines if metrics is None]
    for place in damaged:
        log(f"{path}, line {place} is damaged; it is left out")
    if not damaged:
        log(f"{path} is not as the run wrote it: up to step {start}, lines are missing or numbers were changed")
    return b"".join(line + b"\n" for _, line, metrics in lines if metrics is not None and metrics["step"] <= start)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """A line of metrics; None if it is none."""
    try:
        metrics = parse_object(decode_text(line, "a line"), "a line")
        check_object("", metrics, dict.fromkeys(metrics, float | str | None) | _NUMBERS)
        return check_complete("a line", metrics, _Line)
    except ValueError:
        return None
