"""Rows from files: .txt, .jsonl, .tsv and .csv, each optionally compressed, and files of columns."""

import csv
import itertools
import re
import reprlib
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from tfm.options import json_text
from train import UserError
from train.data.sources import opening
from train.data.sources.text import lines_of, read_text, split_text
from train.settings.gate import user_errors
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

    def checked(self, row: Mapping[str, object], where: str, remedy: str = "") -> Row:
        """The row with what the task reads of it. Raises UserError, which names `where`, for a bad row."""

    def texts_of(self, row: Row) -> tuple[str, ...]:
        """What a row says: rows of equal texts stay together when rows are split."""


class Columns(NamedTuple):
    """The names of the columns that a task reads: texts, and labels if it has any.

    check_label: raises ValueError for a value that is no label of the task
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()
    check_label: Callable[[object], None] | None = None

    @property
    def parallel(self) -> bool:
        """Whether the columns are a text and its translation."""
        return len(self.texts) == 2 and not self.labels

    @property
    def formats(self) -> "Mapping[str, Format]":
        """Plain text, tables and JSON lines."""
        return FORMATS

    @classmethod
    def of(cls, data: Data, labelled: bool, check_label: Callable[[object], None] | None = None) -> Self:
        """The columns that `--data.field` and `--data.label` name."""
        return cls(tuple(data.field.split(",")), tuple(data.label.split(",")) if labelled else (), check_label)

    def texts_of(self, row: Row) -> tuple[str, ...]:
        """The text columns of a row."""
        return tuple(row[name] for name in self.texts)

    def checked(self, row: Mapping[str, object], where: str, remedy: str = "") -> Row:
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
                    if name in row:
                        raise UserError(
                            f"{where} has {reprlib.repr(value)} in its column {name!r}, which is no text; "
                            f"write it in quotes, or name another column with {flags}{remedy}"
                        )
                    raise UserError(
                        f"{where} has no {kind} {name!r} (it has {', '.join(row)}); name it with {flags}{remedy}"
                    )
                if flag == "label" and self.check_label is not None:
                    with user_errors(f"{where}, column {name!r}"):
                        self.check_label(value)
        return {name: row[name] for name in (*self.texts, *self.labels)}


def read(path: Path, data: Data, columns: Reader) -> list[Row]:
    """The rows of a file, in the format that its name says. Raises UserError for a bad file."""
    formats, kind = columns.formats, ending(path, data)
    if path.is_dir():
        raise UserError(f"{path} is a folder; give a quoted glob of its files, such as '{path}/*.txt'")
    if kind not in formats and data.format:
        raise UserError(f"--data.format={data.format} does not fit: this task reads {', '.join(formats)} files")
    if kind not in formats:
        remedy = "; if it is plain text, add --data.format=text" if ".txt" in formats else ""
        if columns.parallel:
            remedy = "; of two files of lines, name both with a comma between"
        raise UserError(f"{path} is not a {', '.join(formats)} file, nor one of these with .gz or .zst{remedy}")
    return list(formats[kind](path, read_text(path), data, columns))


def ending(path: Path, data: Data) -> str:
    """The ending of files in the format of this one: what --data.format says, or its own, without .gz."""
    return opening.ending(str(path), data.format)


def read_texts(path: Path, data: Data, column: str) -> list[str]:
    """The lines of a plain text, with empty ones, or the texts in a column of another file."""
    if ending(path, data) == ".txt":
        return read_lines(path)
    columns = Columns((column,))
    return [columns.texts_of(row)[0] for row in read(path, data, columns)]


def read_lines(path: Path, lone_returns: bool = True) -> list[str]:
    """The lines of a .txt file, with empty ones. Raises UserError where all are blank."""
    text = read_text(path, lone_returns)
    if not text.strip():
        raise UserError(f"{path} holds no text; check the file, or choose another")
    return lines_of(text)


def read_parallel(source: str, columns: Reader) -> list[Row]:
    """The rows of two files, joined by a comma in `source`, a line each.

    The ending of a file (.en, .de.gz) says its side; without endings, source comes first.
    """
    paths = parallel_paths(source, columns)
    lines = [read_lines(path) for path in paths]
    if len(lines[0]) != len(lines[1]):
        counts = " and ".join(f"{path} has {len(side):,}" for path, side in zip(paths, lines, strict=True))
        raise UserError(f"{counts} lines; line n of one must be the translation of line n of the other")
    return [dict(zip(columns.texts, pair, strict=True)) for pair in zip(*lines, strict=True)]


def parallel_paths(source: str, columns: Reader) -> list[Path]:
    """The files of the sides, in the order of the columns. Raises UserError for files of other languages."""
    paths = [Path(name) for name in source.split(",")]
    endings = [opening.ending(str(path))[1:] for path in paths]
    if endings == list(columns.texts[::-1]):
        paths.reverse()
    elif endings != list(columns.texts) and "txt" not in endings:
        flags = f"--task.source={columns.texts[0]} --task.target={columns.texts[1]}"
        raise UserError(
            f"{source} has files of {' and '.join(endings)}, and {flags} asks for others; "
            "name the languages that are there"
        )
    return paths


def _documents(path: Path, text: str, data: Data, columns: Columns) -> Iterator[Row]:
    if columns.labels or len(columns.texts) > 1:
        raise UserError(f"{path} has text alone, no columns; give a .tsv, .csv or .jsonl file")
    for document in split_text(text, data.split):
        yield {columns.texts[0]: document}


def json_lines(path: Path, text: str, data: Data, columns: Reader) -> Iterator[Row]:
    """An object a line."""
    return json_rows(str(path), enumerate(text.split("\n"), start=1), data, columns)


def json_rows(path: str, lines: Iterable[tuple[int, str]], data: Data, columns: Reader) -> Iterator[Row]:
    """The rows of numbered lines, an object each."""
    for line_number, line in lines:
        if not line.strip():
            continue
        where = f"{path}, line {line_number}"
        try:
            value = json_text.parse(line, where)
        except ValueError as error:
            raise UserError(str(error)) from error
        if not isinstance(value, dict):
            raise UserError(f"{where} is a {type(value).__name__}, not an object with a text field {data.field!r}")
        yield columns.checked(value, where)


def _table(path: Path, text: str, data: Data, columns: Columns) -> Iterator[Row]:
    return table_rows(str(path), ending(path, data), lines_of(text), data, columns)


def table_rows(path: str, kind: str, lines: Iterable[str], data: Data, columns: Columns) -> Iterator[Row]:
    """The rows of lines. Cells of a .csv may be quoted; quotes in a .tsv are text. A row of blank cells is a blank
    text."""
    csv.field_size_limit(sys.maxsize)
    content = (f"{line}\n" for line in lines)
    if kind == ".tsv":
        table = csv.reader(content, strict=True, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        table = csv.reader(content, strict=True)
    rows = _numbered(path, table)
    rows = _told_of_quotes(path, rows) if kind == ".tsv" else rows
    first = next(rows, None)
    if first is None:
        return
    names, hint = first[1], "; add --data.header=false if the first line names no columns"
    if data.header:
        if twice := [name for name, count in Counter(names).items() if count > 1 and name.strip()]:
            raise UserError(f"{path} has {names.count(twice[0])} columns with the name {twice[0]!r}; rename the others")
    else:
        names, hint = [str(column) for column in range(1, len(names) + 1)], ""
        rows = itertools.chain([first], rows)
    for line_number, cells in rows:
        if data.header and cells == names and len(cells) > 1:
            raise UserError(f"{path}, line {line_number} names the columns again; leave that line out")
        if isinstance(columns, Columns) and not any(cell.strip() for cell in cells):
            yield dict.fromkeys((*columns.texts, *columns.labels), "")
            continue
        if len(cells) != len(names):
            raise UserError(
                f"{path}, line {line_number} has {len(cells)} columns where the first line has {len(names)}; repair it"
            )
        row = dict(zip(names, cells, strict=True))
        yield columns.checked(row if data.header else _unnamed(row, columns), f"{path}, line {line_number}", hint)


def _numbered(path: str, table: Any) -> Iterator[tuple[int, list[str]]]:
    """The rows of a table but for blank lines, and the line at which each ends; "" alone is a cell, as in pandas.

    Raises UserError for what is no table.
    """
    try:
        for cells in table:
            if cells and (len(cells) > 1 or cells[0].strip() or not cells[0]):
                yield table.line_num, cells
    except csv.Error as error:
        raise UserError(f"{path}, line {table.line_num} is not a line of a table: {error}") from error


def _told_of_quotes(path: str, rows: Iterable[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    """The rows of a .tsv; of the first cell in quotes with two for one, as spreadsheets write them, a warning."""
    warned = False
    for line_number, cells in rows:
        if not warned and (quoted := next((cell for cell in cells if _QUOTED.fullmatch(cell)), None)):
            warned = True
            warnings.warn(
                f"{path}, line {line_number} has the cell {quoted[:40]}: quotes in a .tsv are text, so if a "
                "spreadsheet wrote them, save it as .csv",
                stacklevel=2,
            )
        yield line_number, cells


def _unnamed(row: Row, columns: Columns) -> Row:
    """A row without a header: columns are numbered from 1; by default the text is first and the label last."""
    cells = list(row.values())
    texts = columns.texts if not columns.labels else columns.texts[:1]
    return {**dict(zip(texts, cells, strict=False)), **dict.fromkeys(columns.labels[:1], cells[-1]), **row}


# A cell in quotes, in which quotes stand twice.
_QUOTED = re.compile(r'"[^"]*(""[^"]*)+"')

FORMATS: Mapping[str, Format] = {".txt": _documents, ".jsonl": json_lines, ".tsv": _table, ".csv": _table}
