"""Which piece of which document stands in which row: planned once, so that any row can be built on its own."""

from typing import NamedTuple

import numpy as np

from train.data.tokens import Tokens, ranges


class Plan(NamedTuple):
    """Rows of at most `length` tokens. Row r holds the pieces starts[bounds[r] : bounds[r + 1]], of `sizes` tokens each.

    A piece takes `around` places more than its tokens, for the special tokens around it.
    """

    starts: np.ndarray
    sizes: np.ndarray
    bounds: np.ndarray
    length: int
    around: int = 2

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.bounds) - 1

    @property
    def padding(self) -> float:
        """Share of places that hold no token."""
        return 1 - (self.sizes.sum() + self.around * len(self.sizes)) / (self.rows * self.length) if self.rows else 0.0


def plan(tokens: Tokens, length: int, pack: bool, around: int = 2) -> Plan:
    """Cuts documents into pieces of at most length - around tokens and lays them into rows.

    Packed, each piece goes, longest first, into the fullest row that still has room (best-fit decreasing); else each has a row.
    """
    starts, sizes = _pieces(tokens, length - around)
    if not pack:
        return Plan(starts, sizes, np.arange(len(sizes) + 1), length, around)
    row_of = _best_fit(sizes + around, length)
    order = np.argsort(row_of, kind="stable")
    counts = np.bincount(row_of) if len(row_of) else np.zeros(0, int)
    return Plan(starts[order], sizes[order], np.concatenate([[0], np.cumsum(counts)]), length, around)


def fill(tokens: Tokens, plan: Plan, rows: np.ndarray, specials) -> dict[str, np.ndarray]:
    """int32 [B,T] tokens, segments and positions of the given rows.

    Pieces are numbered from 1 within a row, 0 is padding; positions start again at every piece.
    """
    found, segments, positions = spans(plan, rows)
    row = np.full(segments.size, specials.pad, np.int32)
    row[found.places] = specials.cls
    row[ranges(found.places + 1, found.sizes)] = tokens.ids[ranges(found.starts, found.sizes)]
    row[found.places + 1 + found.sizes] = specials.sep
    return {"tokens": row.reshape(segments.shape), "segments": segments, "positions": positions}


class Spans(NamedTuple):
    """Pieces in rows: their places in these rows, one row behind the other, their starts in the text, and their sizes; each [N]."""

    places: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray


def spans(plan: Plan, rows: np.ndarray) -> tuple[Spans, np.ndarray, np.ndarray]:
    """The pieces in these rows, and int32 [B,T] segments and positions. Row -1 is empty."""
    counts = np.where(rows < 0, 0, plan.bounds[rows + 1] - plan.bounds[rows])
    pieces = ranges(plan.bounds[rows], counts)
    wide = plan.sizes[pieces] + plan.around
    ends = np.concatenate([[0], np.cumsum(wide)])
    within = ends[:-1] - np.repeat(ends[np.cumsum(counts) - counts], counts)
    places = np.repeat(np.arange(len(rows)) * plan.length, counts) + within
    segments, positions = np.zeros((2, len(rows), plan.length), np.int32)
    segments.ravel()[ranges(places, wide)] = np.repeat(ranges(np.ones_like(counts), counts), wide)
    positions.ravel()[ranges(places, wide)] = ranges(np.zeros_like(wide), wide)
    return Spans(places, plan.starts[pieces], plan.sizes[pieces]), segments, positions


def _pieces(tokens: Tokens, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Start and size of every piece, in the order of the text."""
    counts = -(-tokens.lengths // most)
    offsets = ranges(np.zeros_like(counts), counts) * most
    starts = np.repeat(tokens.starts[:-1], counts) + offsets
    return starts, np.minimum(np.repeat(tokens.lengths, counts) - offsets, most)


def _best_fit(sizes: np.ndarray, length: int) -> np.ndarray:
    """The row of every piece. Bit r of `room` says whether some row has r places left, so the fullest that fits is its lowest set bit."""
    open_rows: list[list[int]] = [[] for _ in range(length + 1)]
    row_of, room, rows = np.zeros(len(sizes), np.int64), 0, 0
    for piece in np.argsort(-sizes, kind="stable"):
        size = int(sizes[piece])
        fitting = room >> size
        if fitting:
            left = size + (fitting & -fitting).bit_length() - 1
            row = open_rows[left].pop()
            if not open_rows[left]:
                room &= ~(1 << left)
        else:
            left, row, rows = length, rows, rows + 1
        row_of[piece] = row
        open_rows[left - size].append(row)
        room |= 1 << (left - size)
    return row_of
