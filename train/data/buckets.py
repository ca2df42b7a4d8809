"""Batches of rows of similar lengths: few shapes, little padding, each row once an epoch."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from train.settings.schema import Batch


class Shape(NamedTuple):
    """The shape of a batch: its rows, and the length of each side (source and target)."""

    rows: int
    lengths: tuple[int, ...]

    def __str__(self):
        return f"{self.rows} x {'+'.join(map(str, self.lengths))}"


class Buckets:
    """Rows grouped by length; all batches of a bucket have one of these shapes (see `bucket_shapes`).

    lengths [N,C]: the tokens of each of the C sides of row n. `shape_of` [N] is the bucket of each row, `batches` the
    number of batches of an epoch, `tokens` those of all rows, `padding` the share of places that hold none.
    """

    def __init__(self, lengths: np.ndarray, shapes: Sequence[Shape]):
        self.shapes = list(shapes)
        self.shape_of = _shape_of(lengths, [shape.lengths for shape in shapes])
        counts = np.bincount(self.shape_of, minlength=len(shapes)).tolist()
        batches = [-(-count // shape.rows) for count, shape in zip(counts, self.shapes, strict=True)]
        self.batches = sum(batches)
        self.tokens = int(lengths.sum())
        places = sum(count * shape.rows * sum(shape.lengths) for count, shape in zip(batches, self.shapes, strict=True))
        self.padding = 1 - self.tokens / max(1, places)

    def epoch(self, rng: np.random.Generator | None = None) -> list[np.ndarray]:
        """The rows of every batch of an epoch, -1 for an empty row; shuffled by `rng`, else shape by shape."""
        batches: list[np.ndarray] = []
        for bucket, shape in enumerate(self.shapes):
            rows = np.flatnonzero(self.shape_of == bucket)
            rows = rows if rng is None else rng.permutation(rows)
            filled = np.full(-(-len(rows) // shape.rows) * shape.rows, -1)
            filled[: len(rows)] = rows
            batches += list(filled.reshape(-1, shape.rows))
        return batches if rng is None else [batches[n] for n in rng.permutation(len(batches))]

    def examples(self) -> list[np.ndarray]:
        """For every shape, the rows of a batch that has it: one row, and -1 for the empty rest."""
        firsts = [int((self.shape_of == bucket).argmax()) for bucket in range(len(self.shapes))]
        return [np.array([first] + [-1] * (shape.rows - 1)) for first, shape in zip(firsts, self.shapes, strict=True)]

    def shape(self, rows: np.ndarray) -> Shape:
        """The shape of a batch with these rows."""
        return self.shapes[self.shape_of[rows.max()]]


def bucket_shapes(lengths: np.ndarray, batch: Batch, max_shapes: int) -> list[Shape]:
    """At most `max_shapes` shapes of batches for rows of these lengths [N,C], with little padding."""
    sizes = bucket_sizes(lengths, max_shapes)
    counts = np.bincount(_shape_of(lengths, sizes), minlength=len(sizes)).tolist()
    return [_shape(count, tuple(size), batch) for count, size in zip(counts, sizes.tolist(), strict=True)]


def bucket_sizes(lengths: np.ndarray, max_sizes: int) -> np.ndarray:
    """lengths [N,C] -> sizes [M,C] with little padding, M <= `max_sizes`; a row goes into the smallest that holds it.

    A local search: sizes start at even parts of the rows in order of length, and move while that saves places. Steps
    begin large and end at 1.
    """
    cells, counts = np.unique(lengths, axis=0, return_counts=True)
    if not len(cells):
        return cells
    by_length = lengths[np.argsort(lengths.sum(1), kind="stable")]
    sizes = np.stack([part.max(0) for part in np.array_split(by_length, min(max_sizes, len(cells)))])
    sizes[-1] = lengths.max(0)
    step = max(1, int(lengths.max()) // 4)
    while step:
        before = sizes.copy()
        for index in range(len(sizes) - 1):
            sizes[index] = _best_neighbour(sizes, index, step, cells, counts)
        if (sizes == before).all():
            step //= 2
    chosen = _places(sizes, cells).argmin(0)
    return np.stack([cells[chosen == index].max(0) for index in np.unique(chosen)])


def _best_neighbour(sizes: np.ndarray, index: int, step: int, cells: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The sizes [C] with which rows take the fewest places: sizes[index] itself, or a neighbour `step` away."""
    rest = _places(np.delete(sizes, index, axis=0), cells).min(0)
    moves = sorted(itertools.product((0, 1, -1), repeat=sizes.shape[1]), key=any)  # to stay comes first
    neighbours = sizes[index] + step * np.array(moves)
    return neighbours[(np.minimum(_places(neighbours, cells), rest) @ counts).argmin()]


def _shape_of(lengths: np.ndarray, sizes: np.ndarray | Sequence[tuple[int, ...]]) -> np.ndarray:
    """The smallest of the sizes [M,C] that holds each row, int [N]."""
    return _places(np.asarray(sizes), lengths).argmin(0)


def _places(sizes: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """sizes [M,C], lengths [N,C] -> places [M,N] of row n in size m, a huge number where it does not fit."""
    fits = (lengths <= sizes[:, None]).all(2)
    return np.where(fits, sizes.sum(1)[:, None], 1 << 30)


def _shape(count: int, lengths: tuple[int, ...], batch: Batch) -> Shape:
    """As many rows as batch.tokens allows; up to 25 % fewer if the last batch then has fewer empty rows."""
    max_units = max(1, (batch.tokens or 0) // max(1, *lengths) // batch.unit)
    units = np.arange(max_units, max_units - max_units // 4 - 1, -1)
    rows = np.minimum(batch.unit * units, -(-count // batch.unit) * batch.unit)
    return Shape(int(rows[(-count % rows).argmin()]), lengths)
