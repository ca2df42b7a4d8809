"""Rows from files: .txt, .jsonl, .tsv and .csv, each optionally .gz."""

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from train import UserError
from train.settings.schema import Data

Row = dict[str, Any]

# Path, content, options and reader -> the rows of a file.
Format = Callable[[Path, str, Data, Any], Iterator[Row]]


class Reader(Protocol):
    """What a task reads of a source: the formats of its files, and what every row must have."""

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of texts."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns of labels; a source without any may be one long document."""

    @property
    def parallel(self) -> bool:
        """Whether a row is a text and its translation: blank ones are counted, not left out."""

    @property
    def formats(self) -> "Mapping[str, Format]":
        """The function that reads the rows of a file, by the ending of its name."""

    def checked(self, row: Mapping[str, Any], where: str, remedy: str = "") -> Row:
        """The row with what the task reads of it. Raises UserError, which names `where`, for a bad row."""

    def texts_of(self, row: Row) -> tuple[str, ...]:
        """What a row says: rows of equal texts stay together when rows are split."""


class Columns(NamedTuple):
    """The names of the columns that a task reads: texts, and labels if it has any."""

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()

    @property
    def parallel(self) -> bool:
        """Whether the columns are a text and its translation."""
        return len(self.texts) == 2 and not self.labels

    @property
    def formats(self) -> "Mapping[str, Format]":
        """Plain text, tables and JSON lines."""
        return FORMATS

    @classmethod
    def of(cls, data: Data, labelled: bool) -> "Columns":
        """The columns that `--data.field` and `--data.label` name."""
        return cls(tuple(data.field.split(",")), tuple(data.label.split(",")) if labelled else ())

    def texts_of(self, row: Row) -> tuple[str, ...]:
        """The text columns of a row."""
        return tuple(row[name] for name in self.texts)

    def checked(self, row: Mapping[str, Any], where: str, remedy: str = "") -> Row:
        """The row with these columns alone. Raises UserError for a missing column, an empty label or a bad text."""
        for flag, names in (("field", self.texts), ("label", self.labels)):
            for name in names:
                value = row.get(name)
                if value is None and name in row:
                    raise UserError(
                        f"{where} has a row with nothing in its column {name!r}; leave such rows out, "
                        "or choose another column"
                    )
                if value is None or (flag == "field" and not isinstance(value, str)):
                    kind = "text column" if flag == "field" else "column"
                    flags = f"--data.{flag}=NAME"
                    if self.parallel:
                        flags = "--task.source and --task.target, or --data.field=ONE,OTHER"
                    raise UserError(
                        f"{where} has no {kind} {name!r} (it has {', '.join(row)}); name it with {flags}{remedy}"
                    )
        return {name: row[name] for name in (*self.texts, *self.labels)}


def read(path: Path, data: Data, columns: Reader) -> list[Row]:
    """The rows of a file, in the format that its name says. Raises UserError for a bad file."""
    formats = columns.formats
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if path.is_dir():
        raise UserError(f"{path} is a folder; give a quoted glob of its files, such as '{path}/*.txt'")
    if kind not in formats:
        raise UserError(f"{path} is not a {', '.join(formats)} file, nor one of these with .gz")
    return list(formats[kind](path, _read_text(path), data, columns))


def read_lines(path: Path) -> list[str]:
    """The lines of a .txt file, with empty ones."""
    return _read_text(path).removesuffix("\n").split("\n")


def read_parallel(source: str, columns: Reader) -> list[Row]:
    """The rows of two files, joined by a comma in `source`, a line each.

    The ending of a file (.en, .de.gz) says its side; without endings, source comes first.
    """
    paths = [Path(name) for name in source.split(",")]
    endings = [path.with_suffix("").suffix[1:] if path.suffix == ".gz" else path.suffix[1:] for path in paths]
    if endings == list(columns.texts[::-1]):
        paths.reverse()
    elif endings != list(columns.texts) and "txt" not in endings:
        flags = f"--task.source={columns.texts[0]} --task.target={columns.texts[1]}"
        raise UserError(
            f"{source} has files of {' and '.join(endings)}, and {flags} asks for others; "
            "name the languages that are there"
        )
    lines = [read_lines(path) for path in paths]
    if len(lines[0]) != len(lines[1]):
        counts = " and ".join(f"{path} has {len(side):,}" for path, side in zip(paths, lines, strict=True))
        raise UserError(f"{counts} lines; line n of one must be the translation of line n of the other")
    return [dict(zip(columns.texts, pair, strict=True)) for pair in zip(*lines, strict=True)]


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{path} does not exist; give the path of a file") from error
    except PermissionError as error:
        raise UserError(f"{path} may not be read; change its permissions") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a whole .gz file ({error}); compress it again") from error
    if b"\0" in raw[:100_000]:
        raise UserError(f"{path} is a binary file; give a text file")
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 (byte {error.start}); convert it, for example with iconv -t UTF-8"
        ) from error


def _documents(path: Path, text: str, data: Data, columns: Columns) -> Iterator[Row]:
    if columns.labels or len(columns.texts) > 1:
        raise UserError(f"{path} has text alone, no columns; give a .tsv, .csv or .jsonl file")
    for document in _SPLITS[data.split](text):
        yield {columns.texts[0]: document}


_SPLITS: dict[str, Callable[[str], list[str]]] = {
    "file": lambda text: [text],
    "line": str.splitlines,
    "blank-line": lambda text: re.split(r"\n\s*\n", text),
}


def json_lines(path: Path, text: str, data: Data, columns: Reader) -> Iterator[Row]:
    """An object a line."""
    for line_number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {line_number}"
        try:
            value = json.loads(line)
        except ValueError as error:
            raise UserError(f"{where} is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise UserError(f"{where} is a {type(value).__name__}, not an object with a text field {data.field!r}")
        yield columns.checked(value, where)


def _table(path: Path, text: str, data: Data, columns: Columns) -> Iterator[Row]:
    """Cells of a .csv may be quoted; quotes in a .tsv are text."""
    tabs = ".tsv" in path.suffixes[-2:]
    style: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if tabs else {}
    lines = csv.reader(io.StringIO(text, newline=""), strict=True, **style)
    try:
        rows = [(lines.line_num, cells) for cells in lines if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise UserError(f"{path}, line {lines.line_num} is not a line of a table: {error}") from error
    if not rows:
        return
    if data.header:
        names, rows = rows[0][1], rows[1:]
        hint = "; add --data.header=false if the first line names no columns"
    else:
        names, hint = [str(column) for column in range(1, len(rows[0][1]) + 1)], ""
    for line_number, cells in rows:
        if len(cells) != len(names):
            raise UserError(
                f"{path}, line {line_number} has {len(cells)} columns where the first line has {len(names)}; repair it"
            )
        row = dict(zip(names, cells, strict=True))
        yield columns.checked(row if data.header else _unnamed(row, columns), f"{path}", hint)


def _unnamed(row: Row, columns: Columns) -> Row:
    """A row without a header: columns are numbered from 1; by default the text is first and the label last."""
    cells = list(row.values())
    texts = columns.texts if not columns.labels else columns.texts[:1]
    return {**dict(zip(texts, cells, strict=False)), **dict.fromkeys(columns.labels[:1], cells[-1]), **row}


FORMATS: Mapping[str, Format] = {".txt": _documents, ".jsonl": json_lines, ".tsv": _table, ".csv": _table}
