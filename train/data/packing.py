"""Pieces of documents in rows: planned once, so that any row can be built by itself."""

import bisect
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from train.data.tokens import DocumentTokens, TokenizedTexts, ranges

if TYPE_CHECKING:
    from jax import Array

    import tfm

# Documents that are packed together: 0.02 % padding in rows of 1,024, and a store is planned shard by shard (M64).
_BLOCK = 10_000


class PlannedPieces(NamedTuple):
    """The pieces of several rows: how many each row has, [B], and where each starts in the text and its size, [N]."""

    counts: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray


class PackingPlan(Protocol):
    """Which pieces of a text are in which row of at most `length` places.

    special_tokens: places that a piece takes beside its tokens ([CLS] and [SEP])
    """

    @property
    def length(self) -> int: ...

    @property
    def special_tokens(self) -> int: ...

    @property
    def rows(self) -> int:
        """Number of rows."""

    @property
    def padding(self) -> float:
        """Share of places that hold no token."""

    def pieces(self, rows: np.ndarray) -> PlannedPieces:
        """The pieces of these rows; row -1 is empty."""


class Plan(NamedTuple):
    """A plan in memory: row r holds the pieces starts[bounds[r] : bounds[r + 1]], of `sizes` tokens."""

    starts: np.ndarray
    sizes: np.ndarray
    bounds: np.ndarray
    length: int
    special_tokens: int = 2

    @property
    def rows(self) -> int:
        return len(self.bounds) - 1

    @property
    def padding(self) -> float:
        return padding(self.rows, len(self.sizes), int(self.sizes.sum()), self)

    def pieces(self, rows: np.ndarray) -> PlannedPieces:
        counts = np.where(rows < 0, 0, self.bounds[rows + 1] - self.bounds[rows])
        pieces = ranges(self.bounds[rows], counts)
        return PlannedPieces(counts, self.starts[pieces], self.sizes[pieces])


def padding(rows: int, pieces: int, tokens: int, plan: PackingPlan) -> float:
    """Share of places that hold no token, of so many rows with so many pieces and tokens in all."""
    return 1 - (tokens + plan.special_tokens * pieces) / (rows * plan.length) if rows else 0.0


def plan(tokens: DocumentTokens, length: int, pack: bool, special_tokens: int = 2) -> PackingPlan:
    """The rows of documents: see `plan_documents`. Those of a store have been planned when it was made."""
    if not isinstance(tokens, TokenizedTexts):
        return tokens.plan(length, pack, special_tokens)  # type: ignore[attr-defined]
    return plan_documents(tokens.starts[:-1], tokens.lengths, length, pack, special_tokens)


def plan_documents(starts: np.ndarray, lengths: np.ndarray, length: int, pack: bool, special_tokens: int = 2) -> Plan:
    """Cuts documents into pieces of at most length - special_tokens tokens, and assigns them to rows.

    Packed, each piece of a block of documents goes, longest first, into the fullest row that can hold it (best-fit
    decreasing); else each has a row.
    """
    starts, sizes, documents = _pieces(starts, lengths, length - special_tokens)
    if not pack:
        return Plan(starts, sizes, np.arange(len(sizes) + 1), length, special_tokens)
    row_of, rows = np.zeros(len(sizes), np.int64), 0
    ends = np.searchsorted(documents, np.arange(_BLOCK, len(lengths) + _BLOCK, _BLOCK))
    for first, end in zip([0, *ends[:-1]], ends, strict=True):
        if end > first:
            row_of[first:end] = rows + best_fit(sizes[first:end] + special_tokens, [length])[0]
            rows = int(row_of[first:end].max()) + 1
    by_row = np.argsort(row_of, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(row_of, minlength=rows))])
    return Plan(starts[by_row], sizes[by_row], bounds, length, special_tokens)


def fill(tokens: DocumentTokens, plan: PackingPlan, rows: np.ndarray, specials) -> dict[str, np.ndarray]:
    """int32 [B,T] tokens, segments and positions of these rows, with [CLS] and [SEP] around each piece.

    Pieces are numbered from 1 within a row, 0 is padding; positions restart at every piece.
    """
    pieces, segments, positions = pieces_of(plan, rows)
    row = np.full(segments.size, specials.pad, np.int32)
    row[pieces.places], row[pieces.places + pieces.sizes + 1] = specials.cls, specials.sep
    tokens.write(row, pieces.places + 1, pieces.starts, pieces.sizes)
    return {"tokens": row.reshape(segments.shape), "segments": segments, "positions": positions}


class RowPieces(NamedTuple):
    """Pieces of a text that stand one behind the other in rows.

    starts, sizes: their places in the text, and how many tokens they have, int [N]
    places: their places in all rows, joined, int [N]
    is_filled: the places that they take, bool [B,T]
    """

    starts: np.ndarray
    sizes: np.ndarray
    places: np.ndarray
    is_filled: np.ndarray


def row_mask(model: "tfm.Config", segments: "Array") -> "tfm.Mask":
    """segments [B,T], 0 for padding -> who sees whom; a model that cannot keep texts apart has one in each row."""
    import tfm

    return tfm.segments(segments) if model.reads_packed else tfm.padding(segments > 0)


def pieces_of(plan: PackingPlan, rows: np.ndarray) -> tuple[RowPieces, np.ndarray, np.ndarray]:
    """The pieces in these rows, and int32 [B,T] segments and positions. Row -1 is empty."""
    pieces = plan.pieces(rows)
    widths = pieces.sizes + plan.special_tokens
    ends = np.concatenate([[0], np.cumsum(widths)])
    bounds = np.concatenate([[0], np.cumsum(pieces.counts)])
    is_filled = np.arange(plan.length) < np.diff(ends[bounds])[:, None]
    # What fills a row up is one more piece of it, with the number 0; numbers are repeated, not put into places: M78.
    in_row = ranges(np.ones_like(pieces.counts), pieces.counts)
    numbers = np.insert(in_row, bounds[1:], 0).astype(np.int32)
    with_rest = np.insert(widths, bounds[1:], plan.length - np.diff(ends[bounds]))
    firsts = np.cumsum(with_rest) - with_rest
    segments = np.repeat(numbers, with_rest).reshape(is_filled.shape)
    positions = np.arange(segments.size, dtype=np.int32).reshape(is_filled.shape)
    positions -= np.repeat(firsts.astype(np.int32), with_rest).reshape(is_filled.shape)
    positions *= is_filled
    return RowPieces(pieces.starts, pieces.sizes, firsts[numbers > 0], is_filled), segments, positions


def _pieces(starts: np.ndarray, lengths: np.ndarray, max_size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start, size and document of every piece, in the order of the text."""
    counts = -(-lengths // max_size)
    offsets = ranges(np.zeros_like(counts), counts) * max_size
    documents = np.repeat(np.arange(len(lengths)), counts)
    return starts[documents] + offsets, np.minimum(lengths[documents] - offsets, max_size), documents


def best_fit(
    sizes: np.ndarray, lengths: Sequence[int], slots: Sequence[int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """sizes [N] of pieces -> the row of each, int [N], and the length of every row: best-fit decreasing.

    Where no row has a place for a piece, a new one begins: the shortest of `lengths`, which ascend, that holds it.
    slots: the most pieces in a row of each length; None: any number
    """
    rows_with: list[list[int]] = [[] for _ in range(lengths[-1] + 1)]  # by free places
    row_of = np.zeros(len(sizes), np.int64)
    free = 0  # bit f is set if a row has f free places: the lowest bit fits best
    limits = dict(zip(lengths, slots or [len(sizes)] * len(lengths), strict=True))
    by_size = np.argsort(-sizes, kind="stable")
    full = int((sizes == lengths[-1]).sum())  # these come first, and have a row each
    row_of[by_size[:full]] = np.arange(full)
    row_lengths, free_slots = [lengths[-1]] * full, [0] * full  # of each row
    for piece in by_size[full:]:
        size = int(sizes[piece])
        fitting = free >> size
        if fitting:
            places = size + (fitting & -fitting).bit_length() - 1
            row = rows_with[places].pop()
            if not rows_with[places]:
                free &= ~(1 << places)
        else:
            places = lengths[bisect.bisect_left(lengths, size)]
            row = len(row_lengths)
            row_lengths.append(places)
            free_slots.append(limits[places])
        row_of[piece] = row
        free_slots[row] -= 1
        if free_slots[row]:
            rows_with[places - size].append(row)
            free |= 1 << (places - size)
    return row_of, np.array(row_lengths, np.int64)
