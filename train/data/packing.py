"""Pieces of documents in rows: planned once, so that any row can be built by itself."""

from typing import NamedTuple

import numpy as np
from jax import Array

import tfm
from train.data.tokens import TokenizedTexts, ranges


class Plan(NamedTuple):
    """Rows of at most `length` places. Row r holds the pieces starts[bounds[r] : bounds[r + 1]], of `sizes` tokens.

    special_tokens: places that a piece takes beside its tokens ([CLS] and [SEP])
    """

    starts: np.ndarray
    sizes: np.ndarray
    bounds: np.ndarray
    length: int
    special_tokens: int = 2

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.bounds) - 1

    @property
    def padding(self) -> float:
        """Share of places that hold no token."""
        if not self.rows:
            return 0.0
        return 1 - (self.sizes.sum() + self.special_tokens * len(self.sizes)) / (self.rows * self.length)


def plan(tokens: TokenizedTexts, length: int, pack: bool, special_tokens: int = 2) -> Plan:
    """Cuts documents into pieces of at most length - special_tokens tokens, and assigns them to rows.

    Packed, each piece goes, longest first, into the fullest row that can hold it (best-fit decreasing); else each has
    a row.
    """
    starts, sizes = _pieces(tokens, length - special_tokens)
    if not pack:
        return Plan(starts, sizes, np.arange(len(sizes) + 1), length, special_tokens)
    row_of = _best_fit(sizes + special_tokens, length)
    by_row = np.argsort(row_of, kind="stable")
    counts = np.bincount(row_of) if len(row_of) else np.zeros(0, int)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    return Plan(starts[by_row], sizes[by_row], bounds, length, special_tokens)


def fill(tokens: TokenizedTexts, plan: Plan, rows: np.ndarray, specials) -> dict[str, np.ndarray]:
    """int32 [B,T] tokens, segments and positions of these rows, with [CLS] and [SEP] around each piece.

    Pieces are numbered from 1 within a row, 0 is padding; positions restart at every piece.
    """
    pieces, segments, positions = pieces_of(plan, rows)
    row = np.full(segments.size, specials.pad, np.int32)
    row[pieces.places] = specials.cls
    row[ranges(pieces.places + 1, pieces.sizes)] = tokens.ids[ranges(pieces.starts, pieces.sizes)]
    row[pieces.places + 1 + pieces.sizes] = specials.sep
    return {"tokens": row.reshape(segments.shape), "segments": segments, "positions": positions}


class RowPieces(NamedTuple):
    """Pieces of a text, each [N]: their places in the rows (joined), their starts in the text, and their sizes."""

    places: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray


def row_mask(model: tfm.Config, segments: Array) -> tfm.Mask:
    """segments [B,T], 0 for padding -> who sees whom; a model that cannot keep texts apart has one in each row."""
    return tfm.segments(segments) if model.reads_packed else tfm.padding(segments > 0)


def pieces_of(plan: Plan, rows: np.ndarray) -> tuple[RowPieces, np.ndarray, np.ndarray]:
    """The pieces in these rows, and int32 [B,T] segments and positions. Row -1 is empty."""
    counts = np.where(rows < 0, 0, plan.bounds[rows + 1] - plan.bounds[rows])
    pieces = ranges(plan.bounds[rows], counts)
    widths = plan.sizes[pieces] + plan.special_tokens
    ends = np.concatenate([[0], np.cumsum(widths)])
    within = ends[:-1] - np.repeat(ends[np.cumsum(counts) - counts], counts)
    places = np.repeat(np.arange(len(rows)) * plan.length, counts) + within
    segments, positions = np.zeros((2, len(rows), plan.length), np.int32)
    segments.ravel()[ranges(places, widths)] = np.repeat(ranges(np.ones_like(counts), counts), widths)
    positions.ravel()[ranges(places, widths)] = ranges(np.zeros_like(widths), widths)
    return RowPieces(places, plan.starts[pieces], plan.sizes[pieces]), segments, positions


def _pieces(tokens: TokenizedTexts, max_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Start and size of every piece, in the order of the text."""
    counts = -(-tokens.lengths // max_size)
    offsets = ranges(np.zeros_like(counts), counts) * max_size
    starts = np.repeat(tokens.starts[:-1], counts) + offsets
    return starts, np.minimum(np.repeat(tokens.lengths, counts) - offsets, max_size)


def _best_fit(sizes: np.ndarray, length: int) -> np.ndarray:
    """The row of every piece. Bit f of `free` is set if a row has f free places: the lowest bit fits best."""
    rows_with: list[list[int]] = [[] for _ in range(length + 1)]  # by free places
    row_of = np.zeros(len(sizes), np.int64)
    free, rows = 0, 0
    for piece in np.argsort(-sizes, kind="stable"):
        size = int(sizes[piece])
        fitting = free >> size
        if fitting:
            places = size + (fitting & -fitting).bit_length() - 1
            row = rows_with[places].pop()
            if not rows_with[places]:
                free &= ~(1 << places)
        else:
            places, row = length, rows
            rows += 1
        row_of[piece] = row
        rows_with[places - size].append(row)
        free |= 1 << (places - size)
    return row_of
