"""Documents of files of any size, one after the other: memory holds a line, a batch of rows or a chunk of a text."""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from train import UserError
from train.data.encoding import Document, chunks
from train.data.sources import builtin, files, opening
from train.data.sources.row_files import ROW_FILES
from train.settings.schema import Data


class Slice(NamedTuple):
    """The documents of a file, or of its lines that begin at the bytes `start` to `end` - 1."""

    path: str
    start: int = 0
    end: int | None = None


def documents(part: Slice, data: Data) -> Iterator[Document]:
    """The documents of a part of a source, as --data.* says. Raises UserError for a bad file."""
    if part.path == "builtin":
        return map(chunks, builtin.documents())
    columns = files.Columns((data.field,))
    if part.path.startswith("tfds:"):
        from train.data.sources import tfds

        rows: Iterable[files.Row] = (columns.checked(row, part.path) for row in tfds.stream(part.path))
        return (chunks(row[data.field]) for row in rows)
    kind = opening.ending(part.path, data.format)
    read = _FORMATS.get(kind)
    if read is None:
        raise UserError(
            f"{part.path} is not a {', '.join(_FORMATS)} file, nor one of these with "
            f"{', '.join(opening.DECOMPRESSED)}; if it is plain text, add --data.format=text"
        )
    return read(part, data, columns)


def is_cut(path: str, data: Data) -> bool:
    """Whether the lines of a file are documents of their own, so that a part of it can be read by itself."""
    kind = opening.ending(path, data.format)
    is_plain = not any(path.endswith(compressed) for compressed in opening.DECOMPRESSED)
    return is_plain and (kind == ".jsonl" or (kind == ".txt" and data.split == "line"))


def _text(part: Slice, data: Data, columns: files.Columns) -> Iterator[Document]:
    if data.split == "line":
        return (chunks(line) for _, line in opening.lines(*part))
    if data.split == "blank-line":
        return map(chunks, _paragraphs(opening.chunks_of(part.path)))
    return iter([opening.chunks_of(part.path)])


def _paragraphs(text: Iterable[str]) -> Iterator[str]:
    """What blank lines are between."""
    rest = ""
    for chunk in text:
        rest += chunk
        complete = rest.rstrip()  # more of a blank line may follow
        *paragraphs, last = re.split(r"\n\s*\n", complete)
        yield from filter(str.strip, paragraphs)
        rest = last + rest[len(complete) :]
    paragraphs = re.split(r"\n\s*\n", rest)
    yield from filter(str.strip, paragraphs)


def rows(part: Slice, data: Data, columns: files.Columns) -> Iterator[files.Row]:
    """The rows of a part of a file of columns. Raises UserError for a bad file."""
    kind = opening.ending(part.path, data.format)
    if kind == ".jsonl":
        return files.json_rows(part.path, opening.lines(*part), data, columns)
    if kind in ROW_FILES:
        return ROW_FILES[kind](part.path, columns)
    return files.table_rows(part.path, kind, (line for _, line in opening.lines(part.path)), data, columns)


def _column(part: Slice, data: Data, columns: files.Columns) -> Iterator[Document]:
    return (chunks(row[data.field]) for row in rows(part, data, columns))


# The formats of rows of columns.
TABLES = (".jsonl", ".tsv", ".csv", *ROW_FILES)

_FORMATS: dict[str, Callable[[Slice, Data, files.Columns], Iterator[Document]]] = {
    ".txt": _text,
    **dict.fromkeys(TABLES, _column),
}


def with_text(items: Iterable[Document], left_out: Callable[[], object]) -> Iterator[Document]:
    """The documents that have more than spaces; `left_out` is called for each of the others."""
    for document in items:
        start = iter(document)
        first = next(start, "")
        if first.strip() or (second := next(start, None)) is not None:
            yield itertools.chain([first] if first.strip() else [first, second], start)  # type: ignore[list-item]
        else:
            left_out()
