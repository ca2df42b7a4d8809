"""Rows of a language model: tokens, and at each place the token that comes next.

Both layouts read a text with a separator before every document and after the last (`train.data.tokens`). Every token
of a document is a target once, its first token and the separator after it too. Where two marks stand in place of a
separator, the one before a document is no target:

    text       | the cat sat | on mats |
    tokens     | the cat sat   | on mats
    targets    the cat sat |   on mats |

A folder of transformers has no such marks (`tokenizer_windows`): its tokenizer says what stands before a text, nothing
stands behind it, and the first token of a text is no target.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from train import UserError
from train.data import packing
from train.data.packing import RowPieces
from train.data.tokens import DocumentTokens, TokenizedTexts, ranges


class PackedRows:
    """Rows of whole documents, or of pieces of long ones. A piece is a segment, and its positions start at 0.

    bytes_per_target: UTF-8 bytes of the text for each target
    """

    buckets, independent_rows = None, True

    def __init__(self, text: DocumentTokens, length: int, pack: bool, pad: int, bytes_per_target: float):
        self.text, self.pad, self.bytes_per_target = text, pad, bytes_per_target
        self.plan = packing.plan(text, length, pack, special_tokens=0)
        self.tokens, self.num_targets = text.num_tokens, text.num_targets
        self.padding = self.plan.padding

    def __len__(self):
        return self.plan.rows

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every document."""
        return self.text.split()

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.lm.task`."""
        pieces, segments, positions = packing.pieces_of(self.plan, rows)
        fields = _tokens_and_targets(self.text, pieces, self.pad)
        fields |= {"segments": segments, "positions": positions}
        is_target = _counted(self.text, pieces, segments > 0)
        return fields | _weights(is_target, self.bytes_per_target)


class RowWindows(NamedTuple):
    """Windows on a text: where each starts, how many tokens it reads, of how many of the last ones the next token is a
    target, and where the text ends; int [N]."""

    starts: np.ndarray
    sizes: np.ndarray
    targets: np.ndarray
    ends: np.ndarray


class SpanWindows:
    """Windows of `size` tokens at most, `stride` apart, within spans [N,2], where tokens begin and end that have a next
    one; an empty span has none. They are computed when they are asked for."""

    def __init__(self, spans: np.ndarray, size: int, stride: int):
        self.spans, self.size, self.stride = spans, size, stride
        lengths = np.maximum(spans[:, 1] - spans[:, 0], 0) * (size > 0)
        counts = np.where(lengths > 0, -(-np.maximum(1, lengths - size + stride) // stride), 0)
        self._counts, self._ends = counts, np.cumsum(counts)
        last = np.minimum(size, lengths - (counts - 1) * stride)
        self.tokens = int((np.maximum(counts - 1, 0) * size + np.where(counts > 0, last, 0)).sum())
        self.num_targets = int(lengths.sum()) if stride <= size else self.tokens

    def __len__(self):
        return int(self._ends[-1]) if len(self._ends) else 0

    def of_rows(self, rows: np.ndarray) -> RowWindows:
        """The windows with these numbers."""
        span = np.searchsorted(self._ends, rows, side="right")
        index, (first, end) = rows - (self._ends - self._counts)[span], self.spans[span].T
        starts = first + index * self.stride
        sizes = np.minimum(self.size, end - starts)
        before = np.where(index > 0, np.minimum(starts - self.stride + self.size, end), first)
        return RowWindows(starts, sizes, np.minimum(starts + sizes - before, sizes), end)


class WindowRows:
    """Rows that are windows on the text; a row's targets are in no row before it.

    windows: of `length` tokens at most
    jitter: every time, each window is moved right by a random number of tokens (for training)
    """

    buckets, independent_rows = None, True

    def __init__(
        self,
        text: DocumentTokens,
        windows: SpanWindows,
        length: int,
        pad: int,
        bytes_per_target: float,
        jitter: bool = False,
    ):
        self.text, self.windows, self.length, self.pad = text, windows, length, pad
        self.bytes_per_target, self.jitter = bytes_per_target, jitter
        self.tokens = text.num_tokens
        self.padding = 1 - windows.tokens / max(1, len(windows) * length)

    def __len__(self):
        return len(self.windows)

    @property
    def num_targets(self) -> int:
        """How many targets all rows have, where no window is moved."""
        if self.text.counted is None:
            return self.windows.num_targets
        if not isinstance(self.text, TokenizedTexts):
            return self.text.num_targets  # every token is in a window
        starts, sizes, targets, _ = self.windows.of_rows(np.arange(len(self)))
        before = np.concatenate([[0], np.cumsum(self.text.counted)])
        ends = starts + sizes + 1
        return int((before[ends] - before[ends - targets]).sum())

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every document."""
        return self.text.split()

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.lm.task` without segments and positions."""
        shifts = rng.integers(0, self.length, len(rows)) if self.jitter else np.zeros(len(rows), int)
        filled = rows >= 0
        starts, sizes, targets, ends = self.windows.of_rows(rows[filled])
        starts = np.minimum(starts + shifts[filled], ends - sizes) if self.jitter else starts
        end, first = np.zeros((2, len(rows), 1), np.int64)
        end[filled, 0], first[filled, 0] = sizes, sizes - targets
        places = np.arange(self.length)
        is_target, is_filled = (places >= first) & (places < end), places < end
        pieces = RowPieces(starts, sizes, np.flatnonzero(filled) * self.length, is_filled)
        fields = _tokens_and_targets(self.text, pieces, self.pad)
        is_target = _counted(self.text, pieces, is_target)
        return fields | _weights(is_target, self.bytes_per_target)


def marked_windows(
    text: DocumentTokens,
    length: int,
    stride: int,
    pad: int,
    bytes_per_target: float,
    across: bool,
    jitter: bool = False,
) -> WindowRows:
    """Windows on a text with marks, whose every token has a next one. With `across` they may hold several documents."""
    return WindowRows(text, SpanWindows(text.spans(across), length, stride), length, pad, bytes_per_target, jitter)


def tokenizer_windows(
    text: DocumentTokens, length: int, stride: int | None, pad: int, bytes_per_target: float
) -> WindowRows:
    """Windows of `length` tokens on documents without marks, as the guide of transformers to perplexity has them.

    The last token of a window is a target alone, so `length` - 1 tokens are read. Without a `stride` the next window
    begins at that token. With a stride of `length` the first token of a window is nobody's target.
    """
    size = length - 1
    spans = text.spans(joined=False) - np.array([0, 1])
    return WindowRows(text, SpanWindows(spans, size, stride or max(1, size)), length, pad, bytes_per_target)


def count_between(text: TokenizedTexts, begin: Iterable[int], end: Iterable[int]) -> TokenizedTexts:
    """The text, of which tokens count after one of the ids `begin`, up to one of `end` or the end of the document."""
    places = np.arange(len(text.ids))
    closes = np.isin(text.ids, [*end])
    closes[text.starts[text.starts < len(closes)]] = True  # the separators
    opened = np.maximum.accumulate(np.where(np.isin(text.ids, [*begin]), places, -1))
    closed = np.maximum.accumulate(np.where(closes, places, -1))
    counted = np.zeros(len(places), bool)
    counted[1:] = (opened > closed)[:-1]
    return dataclasses.replace(text, counted=counted & ~closes)


def count_behind(text: TokenizedTexts, shots: int) -> TokenizedTexts:
    """The text, of which the answer behind so many answers of its document counts alone. Raises UserError where no
    document has as many."""
    assert text.counted is not None, "answers are marked"
    begins = text.counted & ~np.concatenate([[False], text.counted[:-1]])
    answers = np.cumsum(begins)
    firsts = text.starts[:-1]
    before = np.repeat(answers[firsts] - begins[firsts], text.lengths)
    numbers = answers[: len(before)] - before
    if numbers.max(initial=0) <= shots:
        raise UserError(
            f"--shots={shots} needs texts of {shots + 1} examples; the longest has {numbers.max(initial=0)}"
        )
    counted = np.zeros_like(text.counted)
    counted[: len(before)] = text.counted[: len(before)] & (numbers == shots + 1)
    return dataclasses.replace(text, counted=counted)


def _counted(text: DocumentTokens, pieces: RowPieces, is_target: np.ndarray) -> np.ndarray:
    """bool [B,T]: the targets that count; those at the places of pieces are the tokens after theirs."""
    if text.counted is None:
        return is_target
    chosen = np.zeros_like(is_target)
    chosen[pieces.is_filled] = text.counted[ranges(pieces.starts, pieces.sizes) + 1]
    return is_target & chosen


def _tokens_and_targets(text: DocumentTokens, pieces: RowPieces, pad: int) -> dict[str, np.ndarray]:
    """Tokens and targets, int32 [B,T]: at the places of pieces their tokens, and the tokens after these."""
    ids, ends = text.read(pieces.starts, pieces.sizes + 1), np.cumsum(pieces.sizes + 1)
    has_next, has_previous = np.ones((2, len(ids)), bool)
    has_next[ends - 1] = has_previous[ends - 1 - pieces.sizes] = False
    tokens, targets = np.full((2, *pieces.is_filled.shape), pad, np.int32)
    tokens[pieces.is_filled] = ids[has_next]
    targets[pieces.is_filled] = ids[has_previous]
    return {"tokens": tokens, "targets": targets}


def _weights(is_target: np.ndarray, bytes_per_target: float) -> dict[str, np.ndarray]:
    """bool [B,T] -> weights [B,T], 1 for a target, and bytes [B] of the text behind the targets; float32."""
    weights = is_target.astype(np.float32)
    return {"weights": weights, "bytes": weights.sum(1) * np.float32(bytes_per_target)}
