"""Pairs in rows: several pairs share a row, their sources on one side and their targets on the other.

    source   a a a b b c c c c .        target   a a b b b b c c c .

Rows are planned once, so that all batches have one shape.
"""

from typing import NamedTuple

import numpy as np

from train.data.buckets import Buckets, Shape, bucket_shapes
from train.settings.schema import Batch

# The most padding of packed rows; with more they must at least have less of it than buckets.
MAX_PADDING = 0.05

# Rows are made longer, up to this multiple of the longest pair, until padding is low.
_LONGEST = 4

# Few empty rows, as a share of the rows of an epoch.
_EMPTY = 0.01


class RowPlan(NamedTuple):
    """Row r holds the pairs order[bounds[r] : bounds[r + 1]]; `buckets` are those of the rows."""

    order: np.ndarray
    bounds: np.ndarray
    buckets: Buckets

    @property
    def packs(self) -> bool:
        """Whether a row holds several pairs."""
        return len(self.bounds) - 1 < len(self.order)


def plan(lengths: np.ndarray, batch: Batch, max_shapes: int, pack: bool | None, like: RowPlan | None = None) -> RowPlan:
    """The rows of pairs with these lengths [N,2].

    pack: several pairs share a row (True), or each pair has a row in a bucket of similar lengths (False); None: they
        share rows where that leaves at most MAX_PADDING, or less padding than buckets
    like: the plan of other pairs, whose choice, and whose shape of packed rows, is kept where these fit
    """
    if like is not None and pack is None:
        pack = like.packs
    packed = _packed(lengths, batch, like) if pack is not False else None
    if packed is not None and (pack or packed.buckets.padding <= MAX_PADDING):
        return packed
    shapes = bucket_shapes(lengths, batch, max_shapes)
    alone = RowPlan(np.arange(len(lengths)), np.arange(len(lengths) + 1), Buckets(lengths, shapes))
    return packed if packed is not None and packed.buckets.padding < alone.buckets.padding else alone


def _packed(lengths: np.ndarray, batch: Batch, like: RowPlan | None) -> RowPlan:
    """Packed rows, as short as padding allows."""
    if like is not None and like.packs:
        shape = like.buckets.shapes[0]
        sides = np.maximum(shape.lengths, lengths.max(0))
        return _packed_as(lengths, Shape(shape.rows, tuple(sides.tolist())))
    plans: list[RowPlan] = []
    for shape in _shapes(lengths, batch):
        plans.append(_trimmed(lengths, _packed_as(lengths, shape)))
        if plans[-1].buckets.padding <= MAX_PADDING:
            break
    return min(plans, key=lambda plan: plan.buckets.padding)


def _shapes(lengths: np.ndarray, batch: Batch) -> list[Shape]:
    """Shapes to try. The longer side has batch.length places or more; the sides are as long as sources are to targets.

    A batch has as many rows as batch.tokens allows, or batch.size.
    """
    totals = lengths.sum(0)
    if batch.tokens is None:
        candidates = [(batch.size, batch.length)]
    else:
        units = max(1, batch.tokens // batch.length // batch.unit)
        halved = [units >> n for n in range(_LONGEST.bit_length()) if units >> n]
        candidates = [(batch.unit * count, max(batch.length, batch.tokens // (batch.unit * count))) for count in halved]
    sides = [np.ceil(longest * totals / totals.max()).astype(int) for _, longest in candidates]
    fitting = [np.maximum(side, lengths.max(0)).tolist() for side in sides]
    return [Shape(rows, tuple(side)) for (rows, _), side in zip(candidates, fitting, strict=True)]


def _packed_as(lengths: np.ndarray, shape: Shape) -> RowPlan:
    """Pairs in rows of this shape."""
    row_of = pack(lengths, np.array(shape.lengths))
    order = np.argsort(row_of, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(row_of))])
    row_lengths = np.add.reduceat(lengths[order], bounds[:-1], axis=0)
    return RowPlan(order, bounds, Buckets(row_lengths, [shape]))


def _trimmed(lengths: np.ndarray, plan: RowPlan) -> RowPlan:
    """The plan, or one of shorter rows that fill the last batch of an epoch too."""
    (shape,), count = plan.buckets.shapes, len(plan.bounds) - 1
    share = count / (plan.buckets.batches * shape.rows)
    if 1 - share <= _EMPTY:
        return plan
    sides = np.maximum(np.ceil(np.array(shape.lengths) * (share + _EMPTY)).astype(int), lengths.max(0))
    shorter = _packed_as(lengths, Shape(shape.rows, tuple(sides.tolist())))
    return min(plan, shorter, key=lambda plan: plan.buckets.padding)


def pack(lengths: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """lengths [N,2] of pairs, and the places [2] of a row -> the row of each pair, int [N].

    A row begins with the pair that needs most of it. Then it takes the pair after which the freer side is least free.
    Rows of equal lengths are planned at once.
    """
    cells, cell_of, left = np.unique(lengths, axis=0, return_inverse=True, return_counts=True)
    largest = np.argsort(-(cells / capacity).max(1), kind="stable")
    rows: list[np.ndarray] = []  # the cells of every row, with those that it has twice
    counts: list[int] = []
    first = 0
    while first < len(largest):
        if not left[largest[first]]:
            first += 1
            continue
        row = _fill(cells, left, largest[first], capacity)
        used, times = np.unique(row, return_counts=True)
        repeats = int((left[used] // times).min())
        left[used] -= repeats * times
        rows.append(row)
        counts.append(repeats)
    # Pairs of a cell go into the rows that hold it, in their order.
    cell_of_place = np.concatenate([np.tile(row, repeats) for row, repeats in zip(rows, counts, strict=True)])
    row_of_place = np.repeat(np.arange(sum(counts)), np.repeat([len(row) for row in rows], counts))
    row_of = np.empty(len(lengths), np.int64)
    row_of[np.argsort(cell_of.ravel(), kind="stable")] = row_of_place[np.argsort(cell_of_place, kind="stable")]
    return row_of


def _fill(cells: np.ndarray, left: np.ndarray, first: int, capacity: np.ndarray) -> np.ndarray:
    """The cells of one row, which begins with `first`."""
    row, free = [first], capacity - cells[first]
    taken = left.copy()
    taken[first] -= 1
    fitting = np.flatnonzero((taken > 0) & (cells <= free).all(1))
    while len(fitting):
        best = int(fitting[((free - cells[fitting]) / capacity).max(1).argmin()])
        row.append(best)
        free = free - cells[best]
        taken[best] -= 1
        fitting = fitting[(taken[fitting] > 0) & (cells[fitting] <= free).all(1)]
    return np.array(row)
