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

from train.data import packing
from train.data.tokens import TokenizedTexts, ranges


class PackedRows:
    """Rows of whole documents, or of pieces of long ones. A piece is a segment, and its positions start at 0.

    bytes_per_target: UTF-8 bytes of the text for each target
    """

    buckets, independent_rows = None, True

    def __init__(self, text: TokenizedTexts, length: int, pack: bool, pad: int, bytes_per_target: float):
        self.text, self.pad, self.bytes_per_target = text, pad, bytes_per_target
        self.plan = packing.plan(text, length, pack, special_tokens=0)
        self.tokens, self.num_targets = int(text.starts[-1]), text.num_targets
        self.padding = self.plan.padding

    def __len__(self):
        return self.plan.rows

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every document."""
        return self.text.split()

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.lm.task`."""
        pieces, segments, positions = packing.pieces_of(self.plan, rows)
        source, target = ranges(pieces.starts, pieces.sizes), ranges(pieces.places, pieces.sizes)
        fields = _tokens_and_targets(self.text, source, target, segments.shape, self.pad)
        fields |= {"segments": segments, "positions": positions}
        is_target = _counted(self.text, source, target, segments > 0)
        return fields | _weights(is_target, self.bytes_per_target)


class RowWindows(NamedTuple):
    """Windows on a text: where each starts, how many tokens it reads, and of how many of the last ones the next token
    is a target; int [N]."""

    starts: np.ndarray
    sizes: np.ndarray
    targets: np.ndarray


class WindowRows:
    """Rows that are windows on the text; a row's targets are in no row before it.

    windows: of `length` tokens at most
    jitter: every time, each window is moved right by a random number of tokens (for training)
    """

    buckets, independent_rows = None, True

    def __init__(
        self,
        text: TokenizedTexts,
        windows: RowWindows,
        length: int,
        pad: int,
        bytes_per_target: float,
        jitter: bool = False,
    ):
        self.text, self.length, self.pad = text, length, pad
        self.bytes_per_target, self.jitter = bytes_per_target, jitter
        self.starts, self.sizes, self.targets = windows
        self.tokens = int(text.starts[-1])
        self.padding = 1 - float(self.sizes.sum()) / max(1, len(self.sizes) * length)

    def __len__(self):
        return len(self.starts)

    @property
    def num_targets(self) -> int:
        """How many targets all rows have, where no window is moved."""
        ends = self.starts + self.sizes + 1
        if self.text.counted is None:
            return int(self.targets.sum())
        before = np.concatenate([[0], np.cumsum(self.text.counted)])
        return int((before[ends] - before[ends - self.targets]).sum())

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every document."""
        return self.text.split()

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.lm.task` without segments and positions."""
        shifts = rng.integers(0, self.length, len(rows)) if self.jitter else np.zeros(len(rows), int)
        filled = rows >= 0
        sizes, targets, starts = (column[rows[filled]] for column in (self.sizes, self.targets, self.starts))
        starts = np.minimum(starts + shifts[filled], self.tokens - sizes)
        places = np.flatnonzero(filled) * self.length
        is_target = np.zeros((len(rows), self.length), bool)
        is_target.ravel()[ranges(places + sizes - targets, targets)] = True
        source, target = ranges(starts, sizes), ranges(places, sizes)
        fields = _tokens_and_targets(self.text, source, target, is_target.shape, self.pad)
        is_target = _counted(self.text, source, target, is_target)
        return fields | _weights(is_target, self.bytes_per_target)


def marked_windows(
    text: TokenizedTexts,
    length: int,
    stride: int,
    pad: int,
    bytes_per_target: float,
    across: bool,
    jitter: bool = False,
) -> WindowRows:
    """Windows on a text with marks, whose every token has a next one. With `across` they may hold several documents."""
    bounds = text.starts[[0, -1]] if across else text.starts
    spans = np.stack([bounds[:-1], bounds[1:]], 1)
    return WindowRows(text, _windows(spans, length, stride), length, pad, bytes_per_target, jitter)


def tokenizer_windows(
    text: TokenizedTexts, length: int, stride: int | None, pad: int, bytes_per_target: float
) -> WindowRows:
    """Windows of `length` tokens on documents without marks, as the guide of transformers to perplexity has them.

    The last token of a window is a target alone, so `length` - 1 tokens are read. Without a `stride` the next window
    begins at that token. With a stride of `length` the first token of a window is nobody's target.
    """
    size = length - 1
    spans = np.stack([text.starts[:-1], text.starts[1:] - 1], 1)
    return WindowRows(text, _windows(spans, size, stride or max(1, size)), length, pad, bytes_per_target)


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


def _counted(text: TokenizedTexts, source: np.ndarray, target: np.ndarray, is_target: np.ndarray) -> np.ndarray:
    """bool [B,T]: the targets that count; those at the places `target` are the tokens after `source`."""
    if text.counted is None:
        return is_target
    chosen = np.zeros_like(is_target)
    chosen.ravel()[target] = text.counted[source + 1]
    return is_target & chosen


def _tokens_and_targets(
    text: TokenizedTexts, source: np.ndarray, target: np.ndarray, shape: tuple[int, int], pad: int
) -> dict[str, np.ndarray]:
    """Tokens and targets, int32 [B,T]: at the places `target`, text.ids[source] and the tokens after them."""
    tokens, targets = np.full((2, *shape), pad, np.int32)
    tokens.ravel()[target] = text.ids[source]
    targets.ravel()[target] = text.ids[source + 1]
    return {"tokens": tokens, "targets": targets}


def _weights(is_target: np.ndarray, bytes_per_target: float) -> dict[str, np.ndarray]:
    """bool [B,T] -> weights [B,T], 1 for a target, and bytes [B] of the text behind the targets; float32."""
    weights = is_target.astype(np.float32)
    return {"weights": weights, "bytes": weights.sum(1) * np.float32(bytes_per_target)}


def _windows(spans: np.ndarray, size: int, stride: int) -> RowWindows:
    """Windows of `size` tokens at most within spans [N,2], where tokens begin and end that have a next one; an empty
    span has none."""
    starts, sizes, targets = ([np.zeros(0, np.int64)] for _ in range(3))
    for first, end in spans if size else ():
        window_starts = np.arange(first, max(first + 1, end - size + stride) if end > first else first, stride)
        window_sizes = np.minimum(size, end - window_starts)
        starts.append(window_starts)
        sizes.append(window_sizes)
        targets.append(np.minimum(np.diff(window_starts + window_sizes, prepend=first), window_sizes))
    return RowWindows(np.concatenate(starts), np.concatenate(sizes), np.concatenate(targets))
