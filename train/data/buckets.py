"""Batches of rows of similar lengths: few shapes, little padding, each row once an epoch."""

import itertools
from typing import NamedTuple

import numpy as np

from train.settings.schema import Batch


class Shape(NamedTuple):
    """The rows of a batch, and the places of each of its sides: of sources and targets."""

    rows: int
    places: tuple[int, ...]

    def __str__(self):
        return f"{self.rows} x {'+'.join(map(str, self.places))}"


class Buckets:
    """Which rows of what lengths stand in which batch; lengths [N,C] are those of each of their C sides.

    There are at most `most` shapes. The batches of an epoch are a pure function of the generator that shuffles them.
    """

    def __init__(self, lengths: np.ndarray, batch: Batch, most: int):
        sizes = sizes_for(lengths, most)
        self.shape_of = _places(sizes, lengths).argmin(0)
        counts = np.bincount(self.shape_of, minlength=len(sizes)).tolist()
        self.shapes = [_shape(count, tuple(size), batch) for count, size in zip(counts, sizes.tolist(), strict=True)]
        each = [-(-count // shape.rows) for count, shape in zip(counts, self.shapes, strict=True)]
        self.batches, self.tokens = sum(each), int(lengths.sum())
        places = sum(number * shape.rows * sum(shape.places) for number, shape in zip(each, self.shapes, strict=True))
        self.padding = 1 - self.tokens / max(1, places)

    def epoch(self, rng: np.random.Generator | None = None) -> list[np.ndarray]:
        """The rows of every batch of an epoch, -1 for one that is empty; shuffled by `rng`, else shape by shape."""
        batches: list[np.ndarray] = []
        for number, shape in enumerate(self.shapes):
            rows = np.flatnonzero(self.shape_of == number)
            rows = rows if rng is None else rng.permutation(rows)
            filled = np.full(-(-len(rows) // shape.rows) * shape.rows, -1)
            filled[: len(rows)] = rows
            batches += list(filled.reshape(-1, shape.rows))
        return batches if rng is None else [batches[n] for n in rng.permutation(len(batches))]

    def examples(self) -> list[np.ndarray]:
        """For every shape, the rows of a batch that has it: one row, and -1 for those that are empty."""
        firsts = [int((self.shape_of == number).argmax()) for number in range(len(self.shapes))]
        return [np.array([first] + [-1] * (shape.rows - 1)) for first, shape in zip(firsts, self.shapes, strict=True)]

    def shape(self, rows: np.ndarray) -> Shape:
        """The shape of a batch with these rows."""
        return self.shapes[self.shape_of[rows.max()]]


def sizes_for(lengths: np.ndarray, most: int) -> np.ndarray:
    """lengths [N,C] -> sizes [M,C], M at most `most`, such that rows in the smallest one that holds them leave few places empty.

    From even parts of the rows in order of length, sizes move for as long as that saves places: far at first, then by one.
    """
    cells, counts = np.unique(lengths, axis=0, return_counts=True)
    if not len(cells):
        return cells
    ranked = lengths[np.argsort(lengths.sum(1), kind="stable")]
    sizes = np.stack([part.max(0) for part in np.array_split(ranked, min(most, len(cells)))])
    sizes[-1] = lengths.max(0)
    step = max(1, int(lengths.max()) // 4)
    while step:
        moved = [_move(sizes, number, step, cells, counts) for number in range(len(sizes) - 1)]
        step = step if any(moved) else step // 2
    chosen = _places(sizes, cells).argmin(0)
    return np.stack([cells[chosen == number].max(0) for number in np.unique(chosen)])


def _move(sizes: np.ndarray, number: int, step: int, cells: np.ndarray, counts: np.ndarray) -> bool:
    """Moves one size to where the rows take the fewest places, of all that are a step away, and says whether that is elsewhere."""
    others = _places(np.delete(sizes, number, axis=0), cells).min(0)
    moves = sorted(itertools.product((0, 1, -1), repeat=sizes.shape[1]), key=any)  # to stay is the first of them
    around = sizes[number] + step * np.array(moves)
    best = (np.minimum(_places(around, cells), others) @ counts).argmin()
    sizes[number] = around[best]
    return bool(best)


def _places(sizes: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """sizes [M,C], lengths [N,C] -> the places [M,N] that each row takes, more than any has where it does not fit."""
    holds = (lengths <= sizes[:, None]).all(2)
    return np.where(holds, sizes.sum(1)[:, None], 1 << 30)


def _shape(count: int, places: tuple[int, ...], batch: Batch) -> Shape:
    """The rows that the tokens allow, or up to a quarter fewer where that leaves fewer of the last batch empty."""
    most = max(1, batch.tokens // max(places) // batch.unit)
    rows = np.minimum(batch.unit * np.arange(most, most - most // 4 - 1, -1), -(-count // batch.unit) * batch.unit)
    return Shape(int(rows[(-count % rows).argmin()]), places)
