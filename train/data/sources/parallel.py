"""Sentence pairs: from two files whose lines belong together, or from two columns; and the rows that translation models learn from."""

from collections.abc import Sequence

import numpy as np

from train import UserError
from train.data.buckets import Buckets
from train.data.sources import files, sources
from train.data.tokens import Tokens, ranges
from train.settings.schema import Batch, Data
from train.settings.tasks import Translate
from train.text.tokenizer import Marks

Pair = tuple[str, str]


def load(
    data: Data, task: Translate, builtin: sources.Builtin, valid_only: bool = False
) -> tuple[list[Pair], list[Pair], int]:
    """Pairs to train on, pairs to validate on, and how many were left out because one side of them is empty."""
    columns = columns_of(data, task)
    parts = sources.load(data, columns, builtin, valid_only)
    pairs = [[(row[columns.texts[0]].strip(), row[columns.texts[1]].strip()) for row in part] for part in parts]
    train, valid = ([pair for pair in part if all(pair)] for part in pairs)
    return train, valid, sum(map(len, pairs)) - len(train) - len(valid)


def columns_of(data: Data, task: Translate) -> files.Columns:
    """The columns of source and target: those that --data.field names, else the languages."""
    names = tuple(data.field.split(",")) if data.field != "text" else (task.source, task.target)
    if len(names) != 2:
        raise UserError(
            f"--data.field={data.field} must name two columns, the source and the target, with a comma between"
        )
    return files.Columns(names)


class TranslationPairs:
    """Rows of a source between its marks, and a target between its own, in at most `shapes` buckets.

    Of the pairs `given`, those longer than the batch allows are left out: `long`.
    """

    independent_rows = True

    def __init__(
        self, pairs: Sequence[Pair], sides: Sequence[Tokens], batch: Batch, marks: Marks, smoothing: float, shapes: int
    ):
        self.marks, self.smoothing = marks, smoothing
        self.source, self.target = sides
        lengths = np.stack([side.lengths + len(marks.before) + len(marks.after) for side in sides], axis=1)
        fits = lengths.max(1) <= batch.length
        self.given, self.numbers = pairs, np.flatnonzero(fits)
        self.pairs, self.long = (
            [pairs[number] for number in np.flatnonzero(chosen).tolist()] for chosen in (fits, ~fits)
        )
        self.buckets = Buckets(lengths[self.numbers], batch, shapes)
        self.tokens, self.padding = self.buckets.tokens, self.buckets.padding

    def __len__(self):
        return len(self.numbers)

    def batch(self, numbers: np.ndarray, rng: np.random.Generator | None = None) -> dict[str, np.ndarray]:
        """The fields that stand at the top of `train.tasks.translate`."""
        shape, marks = self.buckets.shape(numbers), self.marks
        (tokens, valid), (targets, judged) = (
            self._marked(side, numbers, places)
            for side, places in zip((self.source, self.target), shape.lengths, strict=True)
        )
        target = np.where(judged, np.roll(targets, 1, axis=1), marks.pad)
        target[judged[:, 0], 0] = marks.start
        smoothing = np.full(len(numbers), self.smoothing, np.float32)
        fields = {"tokens": tokens, "valid": valid.astype(np.int32), "target": target, "targets": targets}
        return fields | {"weights": judged.astype(np.float32), "smoothing": smoothing}

    def _marked(self, side: Tokens, numbers: np.ndarray, places: int) -> tuple[np.ndarray, np.ndarray]:
        """Texts of a side between their marks in rows of so many places, int32, and where they are, bool; row -1 is empty."""
        before, after = self.marks.before, self.marks.after
        rows = np.flatnonzero(numbers >= 0)
        texts = self.numbers[numbers[rows]]
        starts, sizes = side.starts[texts], side.starts[texts + 1] - side.starts[texts]
        ends = np.zeros((2, len(numbers), 1), int)  # of the text, and of what stands after it
        ends[:, rows, 0] = len(before) + sizes, len(before) + sizes + len(after)
        row, place = np.full((len(numbers), places), self.marks.pad, np.int32), np.arange(places)
        row[(place >= len(before)) & (place < ends[0])] = side.ids[ranges(starts, sizes)]
        row[rows[:, None], place[: len(before)]] = before
        row[rows[:, None], ends[0, rows] + np.arange(len(after))] = after
        return row, place < ends[1]
