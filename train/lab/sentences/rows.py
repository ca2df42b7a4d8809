"""Rows of tasks, in SentEval's order: it sorts them by words and label, on which folds and batches depend.

Its download script writes sentences as words with spaces between. Labels that are words get numbers here.
"""

import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from train import UserError

# Files below the folders of --data that are looked at, at most.
_MAX_FILES = 100_000

# What an empty sentence is read as; a few are in MPQA and CR. And the largest share of a part that may be empty.
EMPTY, _MAX_EMPTY = ".", 0.02

Labelled = list[tuple[str, int]]

Row = TypeVar("Row")


class SentenceRows(NamedTuple):
    """Sentences, or pairs of them, with classes int [N] or scores float [N]; images float [N,D] of captions."""

    texts: list[str]
    labels: np.ndarray
    pairs: list[str] | None = None
    images: np.ndarray | None = None


class Dataset(NamedTuple):
    """The parts of a task: `all` for folds, or train, dev and test; sources of scored pairs by name.

    classes: how many there are, 0 for scores
    note: in what it differs from SentEval's
    """

    parts: Mapping[str, SentenceRows]
    classes: int
    note: str = ""

    def sentences(self) -> list[str]:
        """All sentences, each once."""
        return list(dict.fromkeys(text for rows in self.parts.values() for text in (*rows.texts, *(rows.pairs or ()))))


def check_sentences(data: Dataset, where: str) -> Dataset:
    """The rows, with a note about empty sentences. Raises UserError where a part has no rows, or many empty ones."""
    empty = 0
    for name, rows in data.parts.items():
        texts = [*rows.texts, *(rows.pairs or ())]
        count = texts.count(EMPTY)
        if not texts or count > max(1, _MAX_EMPTY * len(texts)):
            state = f"{count:,} empty sentences of {len(texts):,}" if texts else "no rows"
            raise UserError(f"{where} has {state} in the part {name!r}; repair the file, or fetch it again")
        empty += count
    notes = [data.note] if data.note else []
    notes += [f"{empty} empty sentence{'s' * (empty > 1)}, read as {EMPTY!r}"] if empty else []
    return data._replace(note="; ".join(notes))


class Files:
    """The files below one or more folders, joined by commas."""

    def __init__(self, data: str):
        self.data, self.paths = data, []
        for name in data.split(","):
            if not Path(name).is_dir():
                raise UserError(f"--data={name} is not a folder; name the one that holds the files of the tasks")
            for folder, _, names in os.walk(name):
                self.paths += [Path(folder) / file for file in names]
                if len(self.paths) > _MAX_FILES:
                    raise UserError(f"--data={name} holds more than {_MAX_FILES:,} files; name a folder further down")
        self.paths.sort(key=lambda path: (len(path.parts), path))

    def find(self, end: str) -> Path | None:
        """The file, nearest to the top, whose path ends so; * stands for anything."""
        return next((path for path in self.paths if fnmatch(f"/{path.as_posix()}", f"*/{end}")), None)


def classified(rows: Labelled, path: Path) -> SentenceRows:
    """Sorted rows of training. Raises UserError where there is one class only."""
    part = ordered(rows)
    check_classes(part.labels, path)
    return part


def ordered(rows: Labelled) -> SentenceRows:
    """Rows in the order of SentEval: by words, then by label."""
    rows = sorted(rows, key=lambda row: (word_count(row[0]), row[1]))
    return SentenceRows([text for text, _ in rows], np.array([label for _, label in rows], np.int64))


def classified_pairs(rows: Sequence[tuple[str, str, int]], path: Path) -> SentenceRows:
    """Pairs of training, sorted. Raises UserError where there is one class only."""
    part = ordered_pairs(rows, int)
    check_classes(part.labels, path)
    return part


def ordered_pairs(rows: Sequence[tuple[str, str, float]], kind: type) -> SentenceRows:
    """Pairs in the order of SentEval: by the words of both, then by label."""
    rows = sorted(rows, key=lambda row: (word_count(row[0]), word_count(row[1]), row[2]))
    return SentenceRows([row[0] for row in rows], np.array([row[2] for row in rows], kind), [row[1] for row in rows])


def check_classes(labels: np.ndarray, path: Path):
    """Raises UserError where there is one class only."""
    if len(np.unique(labels)) < 2:
        raise UserError(f"{path} has rows of {len(np.unique(labels))} class; a classifier needs two or more")


def with_test(train: Labelled, dev: Labelled, test: Labelled | None, classes: int, path: Path) -> Dataset:
    """The three parts of a task. Raises UserError where there is one class only."""
    parts, note = three_parts([train, dev] if test is None else [train, dev, test])
    rows = {name: ordered(part) for name, part in parts.items()}
    check_classes(rows["train"].labels, path)
    return Dataset(rows, classes, note)


def three_parts(parts: list[list[Row]]) -> tuple[dict[str, list[Row]], str]:
    """Train, dev and test. Without a test file, dev is the test set, and a tenth of train stands for dev."""
    if len(parts) == 3:
        return dict(zip(("train", "dev", "test"), parts, strict=True)), ""
    train, test = parts
    order = np.random.RandomState(1111).permutation(len(train))
    cut = len(train) // 10
    by_order = [train[row] for row in order]
    return {"train": by_order[cut:], "dev": by_order[:cut], "test": test}, "no test file: measured on dev"


def table(path: Path, columns: int, header: bool = False) -> list[tuple[str, list[str]]]:
    """The cells of every line, parted by tabs, and where it stands. Raises UserError where they are too few."""
    rows = [(where, line.split("\t")) for where, line in lines(path)]
    for where, cells in rows:
        if len(cells) < columns:
            raise UserError(f"{where} has {len(cells)} columns, and {columns} are needed; repair it")
    return rows[1:] if header else rows


def lines(path: Path) -> list[tuple[str, str]]:
    """The lines of a file, UTF-8 or else Latin-1, and where each stands."""
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    rows = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    return [(f"{path}, line {index}", line) for index, line in enumerate(rows, start=1)]


def sentence(text: str) -> str:
    """The words of a sentence with spaces between. One without words is a dot, as encoders of SentEval read it."""
    return " ".join(text.split()) or EMPTY


def word_count(text: str) -> int:
    """The words of a sentence: parts between spaces."""
    return 0 if text == EMPTY else len(text.split())


def class_number(label: str, classes: int, where: str) -> int:
    """A class that is written as a number. Raises UserError for a number from `classes` on."""
    if not label.strip().isdecimal() or int(label) >= classes:
        raise UserError(f"{where} has the label {label!r}; it must be a number from 0 to {classes - 1}")
    return int(label)


def class_of(label: str, codes: Mapping[str, int], where: str) -> int:
    """A class that is written as a word. Raises UserError for another word."""
    if label.strip() not in codes:
        raise UserError(f"{where} has the label {label!r}; known are {', '.join(list(codes)[:20])}")
    return codes[label.strip()]


def score(text: str, limits: tuple[int, int], where: str) -> float:
    """A score. Raises UserError where it is no number, or outside the limits."""
    try:
        value = float(text)
        if not limits[0] <= value <= limits[1]:
            raise ValueError
    except ValueError as error:
        raise UserError(f"{where} has the score {text!r}; it must be from {limits[0]} to {limits[1]}") from error
    return value
