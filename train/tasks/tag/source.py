"""Sentences whose words have tags: CoNLL columns, JSON lines, rows of TensorFlow datasets.

A CoNLL file has a word a line, its columns apart by tabs or spaces, and a blank line between sentences. Of the ten
columns of Universal Dependencies the second and the fourth are read, and lines before a sentence that begin with # are
comments:

    Ada     B-PER
    Byron   I-PER
    wrote   O
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from train import UserError
from train.data.labels import class_name
from train.data.sources import files
from train.data.sources.files import Format, Row
from train.settings.schema import Data

# The names of columns where no flag gives others; in a CoNLL file they are the first and the last.
WORDS, TAGS = "tokens", "tags"

# The columns of Universal Dependencies: how many there are, and those of words and of parts of speech, from 0.
_UD_COLUMNS, _UD_WORD, _UD_TAG = 10, 1, 3

# What separates documents in the files of CoNLL 2003.
DOCUMENT = "-DOCSTART-"


class TaggedWords(NamedTuple):
    """The names of the columns of words and of tags; without tags, words alone or texts are read, for predictions.

    A row is {"tokens": [...], "tags": [...], "where": its place}, and of a CoNLL file also the "line" that it begins
    at; one without tags then has its "lines", and the comments and lines of -DOCSTART- "before" them.
    """

    words: str
    tags: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The column of words."""
        return (self.words,)

    @property
    def labels(self) -> tuple[str, ...]:
        """The column of tags."""
        return (self.tags,) if self.tags else ()

    @property
    def parallel(self) -> bool:
        """A row is no translation."""
        return False

    @property
    def formats(self) -> Mapping[str, Format]:
        """Columns and JSON lines."""
        return {".conll": _columns, ".conllu": _columns, ".tsv": _columns, ".jsonl": files.json_lines}

    def texts_of(self, row: Row) -> tuple[str, ...]:
        """The words of a row in a line; of words that are all blank, how Python writes them."""
        words = row.get("tokens", [])
        text = row["text"] if "text" in row else " ".join(words)
        return (text if text.strip() or not words else repr(words),)

    def checked(self, row: Mapping[str, Any], where: str, remedy: str = "") -> Row:
        """The words and tags of a row. Raises UserError where one has none of the other, or they are no lists."""
        words: Any = row.get(self.words)
        if not self.tags and self.words not in row:
            words = row.get("text")
        if not self.tags and isinstance(words, str):
            return {"text": words, "where": where}
        for flag, name, values in (("field", self.words, words), ("label", self.tags, row.get(self.tags))):
            if name and not isinstance(values, list):
                kind = f"a {type(values).__name__}" if name in row else "no list"
                raise UserError(
                    f"{where} has {kind} in its column {name!r} (it has {', '.join(row)}), where a list of words or "
                    f"tags must stand; name another with --data.{flag}=NAME{remedy}"
                )
        if not all(isinstance(word, str) for word in words):
            raise UserError(f"{where} has a word that is no text in its column {self.words!r}; write it in quotes")
        if not self.tags:
            return {"tokens": words, "where": where}
        tags = row[self.tags]
        if len(words) != len(tags):
            raise UserError(f"{where} has {len(words)} words and {len(tags)} tags; give every word its tag")
        for word, label in zip(words, tags, strict=True):
            if label is None or isinstance(label, list | dict) or class_name(label) == "":
                raise UserError(f"{where} has the word {word!r} without a tag; give it one, or leave the sentence out")
        return {"tokens": words, "tags": [class_name(label) for label in tags], "where": where}


class _Layout(NamedTuple):
    """How the lines of a file are read: whether tabs part their columns, how many these are, which hold what."""

    tabs: bool
    columns: int
    word: int
    tag: int | None
    header: bool

    def cells(self, line: str) -> list[str]:
        """The columns of a line."""
        return [cell.strip(" ") for cell in line.split("\t")] if self.tabs else re.split("[ \t]+", line.strip(" \t"))

    def is_comment(self, line: str) -> bool:
        """Whether a line before a sentence is no word: it begins with # and has not the columns of one."""
        return line.startswith("#") and len(self.cells(line)) != self.columns

    def is_word(self, line: str) -> bool:
        """Whether a line holds a word, and not a range of words or an empty node of Universal Dependencies."""
        return not (self.columns == _UD_COLUMNS and re.match(r"\d+[-.]\d+\t", line))


def _columns(path: Path, text: str, data: Data, reader: TaggedWords) -> Iterator[Row]:
    """The sentences of a CoNLL file. Raises UserError for a line with too few columns, or too many."""
    lines = list(enumerate(text.split("\n"), start=1))
    with_words = [line for line in lines if _has_word(line[1])]
    if not with_words:
        return
    first = next((line for line in with_words if not line[1].startswith("#")), with_words[0])
    layout = _layout(path, *first, reader)
    before: list[str] = []
    sentence: list[tuple[int, str]] = []
    for line_number, line in [*lines, (len(lines) + 1, "")]:
        if not sentence and layout.is_comment(line):
            before.append(line)
            continue
        if _has_word(line) and not (layout.header and line_number == first[0]):
            if layout.is_word(line):
                sentence.append((line_number, line))
            continue
        if sentence:
            yield _sentence(path, sentence, layout, before)
            sentence, before = [], []
        if line.startswith(DOCUMENT):
            before.append(line)


def _has_word(line: str) -> bool:
    return bool(line.strip(" \t")) and not line.startswith(DOCUMENT)


def _sentence(path: Path, lines: list[tuple[int, str]], layout: _Layout, before: list[str]) -> Row:
    """The row of the lines of a sentence, with their numbers in the file."""
    words, tags = [], []
    for line_number, line in lines:
        where, cells = f"{path}, line {line_number}", layout.cells(line)
        if len(cells) != layout.columns:
            raise UserError(
                f"{where} has {len(cells)} columns where the first line has {layout.columns}; repair it, or put a "
                "blank line between sentences"
            )
        if not cells[layout.word]:
            raise UserError(f"{where} has a tag without a word; repair it")
        words.append(cells[layout.word])
        if layout.tag is not None:
            tags.append(cells[layout.tag])
            if not tags[-1]:
                raise UserError(f"{where} has the word {words[-1]!r} without a tag; give it one")
    row: Row = {"tokens": words, "where": str(path), "line": lines[0][0]}
    if layout.tag is not None:
        return row | {"tags": tags}
    return row | {"lines": [line for _, line in lines], "before": before}


def place_of(row: Row, word: int) -> str:
    """Where a word of a row stands, for errors."""
    return f"{row['where']}, line {row['line'] + word}" if "line" in row else f"{row['where']}, word {word + 1},"


def _layout(path: Path, line_number: int, line: str, reader: TaggedWords) -> _Layout:
    """The layout that the first line of a file shows. Raises UserError where it lacks a column."""
    tabs = "\t" in line
    cells = _Layout(tabs, 0, 0, None, False).cells(line)
    named = [name in cells for name in (*reader.texts, *reader.labels)]
    if reader.tags and len(cells) < 2:
        raise UserError(f"{path}, line {line_number} has 1 column; a line must have a word and its tag, apart by a tab")

    def index(flag: str, name: str, default: str, position: int) -> int:
        if all(named):
            return cells.index(name)
        if name == default:
            return position
        if not name.isdigit() or not 1 <= int(name) <= len(cells):
            raise UserError(
                f"{path} has no column {name!r}; its first line has {len(cells)} columns, which --data.{flag} "
                "numbers from 1"
            )
        return int(name) - 1

    is_ud = tabs and len(cells) == _UD_COLUMNS and cells[0].split("-")[0] == "1"
    word = index("field", reader.words, WORDS, _UD_WORD if is_ud else 0)
    tag = index("label", reader.tags, TAGS, _UD_TAG if is_ud else len(cells) - 1) if reader.tags else None
    return _Layout(tabs, len(cells), word, tag, header=all(named))
