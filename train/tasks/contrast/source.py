"""Rows of texts that belong together, or do not: columns of tables, or the lines of plain texts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from train import UserError
from train.data.sources import files
from train.data.sources.files import FORMATS, Columns, Format, Row
from train.data.sources.text import split_text
from train.data.synthetic import deals, grammar
from train.settings.schema import Data

# Of a built-in row: whether it has a combination of words that the training data lack.
WITHHELD = "withheld"

# The columns of built-in questions: with a passage that answers each, and one that does not, but for a detail.
QUESTIONS = ("query", "passage", "negative")


class Sides(Columns):
    """The columns of the texts of a row, and of its score if it has one. A line of a .txt is a text."""

    @property
    def parallel(self) -> bool:
        """Blank rows are left out; texts stand in one file."""
        return False

    @property
    def formats(self) -> Mapping[str, Format]:
        """Plain text, tables and JSON lines."""
        return {**FORMATS, ".txt": _texts}

    def is_usable(self, row: Row) -> bool:
        """Whether the texts that every row must have, the first two, are not blank."""
        return all(text.strip() for text in self.texts_of(row)[:2])


def _texts(path: Path, text: str, data: Data, columns: Columns) -> Iterator[Row]:
    if len(columns.texts) > 1:
        raise UserError(
            f"{path} has texts alone, and --data.field={','.join(columns.texts)} asks for columns; say "
            "--data.field=text"
        )
    split = "line" if data.split == "file" else data.split
    for piece in split_text(text, split):
        yield {columns.texts[0]: piece}


def builtin(reader: Sides) -> tuple[list[Row], list[Row]]:
    """Built-in rows in the columns of a run: questions and passages, if it names those of them; else sentences, English
    alone, or with their German translations.

    With scores, every other sentence stands beside the translation of another one, and has the score 0. Raises
    UserError for more columns.
    """
    if reader.texts[:2] == QUESTIONS[:2] and set(reader.texts) <= {*QUESTIONS} and not reader.labels:
        rows = deals.read()
        return rows.train, rows.valid
    if len(reader.texts) > 2:
        raise UserError(
            f"--data.field={','.join(reader.texts)} names {len(reader.texts)} columns, and built-in sentences have a "
            f"translation each; name two columns, or {','.join(QUESTIONS)} for questions, or give --data"
        )
    splits = grammar.kept_pairs()
    valid = [*_rows(reader, splits.test, False), *_rows(reader, splits.compositional, True)]
    return list(_rows(reader, splits.train, False)), valid


def _rows(reader: Sides, pairs: Sequence[tuple[str, str]], withheld: bool) -> Iterator[Row]:
    for index, (english, german) in enumerate(pairs):
        is_wrong = bool(reader.labels) and index % 2 > 0
        texts = english, pairs[index - 1][1] if is_wrong else german
        labels = dict.fromkeys(reader.labels, float(not is_wrong))
        yield dict(zip(reader.texts, texts, strict=False)) | labels | {WITHHELD: withheld}


def read_pairs(path: Path, data: Data, names: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of texts of a file: two columns, or the lines of a .txt with a tab between. Raises UserError for
    others."""
    rows: list[tuple[str, ...]]
    if files.ending(path, data) == ".txt":
        rows = [tuple(line.split("\t")) for line in files.read_lines(path)]
    else:
        columns = Columns(tuple(names))
        rows = [columns.texts_of(row) for row in files.read(path, data, columns)]
    bad = next((index for index, row in enumerate(rows) if len(row) != 2), None)
    if bad is not None:
        raise UserError(
            f"row {bad + 1} of {path} has {len(rows[bad])} texts; give two, with a tab between, or --field=FIRST,SECOND"
        )
    return [(first, second) for first, second in rows]
