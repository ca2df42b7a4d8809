"""Rows of a language model: tokens, and at each place the token that comes next.

Both layouts read a text with a separator before every document and after the last (`train.data.tokens`). Every token
of a document is a target once, its first token and the separator after it too. Where two marks stand in place of a
separator, the one before a document is no target:

    text       | the cat sat | on mats |
    tokens     | the cat sat   | on mats
    targets    the cat sat |   on mats |
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

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


class WindowRows:
    """Rows that are windows on the text, `stride` tokens apart; a row's targets are in no row before it.

    across: a window may contain several documents; else it stays within one
    jitter: every time, each window is moved right by a random number of tokens (for training)
    """

    buckets, independent_rows = None, True

    def __init__(
        self,
        text: TokenizedTexts,
        length: int,
        stride: int,
        pad: int,
        bytes_per_target: float,
        across: bool,
        jitter: bool = False,
    ):
        self.text, self.length, self.pad = text, length, pad
        self.bytes_per_target, self.jitter = bytes_per_target, jitter
        bounds = text.starts[[0, -1]] if across else text.starts
        self.starts, self.sizes, self.targets = _windows(bounds, length, stride)
        self.tokens, self.num_targets = int(text.starts[-1]), text.num_targets
        self.padding = 1 - float(self.sizes.sum()) / max(1, len(self.sizes) * length)

    def __len__(self):
        return len(self.starts)

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


def count_between(text: TokenizedTexts, begin: Iterable[int], end: Iterable[int]) -> TokenizedTexts:
    """The text, of which tokens count after one of the ids `begin`, up to one of `end` or the end of the document."""
    places = np.arange(len(text.ids))
    closes = np.isin(text.ids, [*end])
    closes[text.starts] = True  # the separators
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


def _windows(bounds: np.ndarray, length: int, stride: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start, size and number of targets of each window; a window stays between two neighbouring bounds."""
    starts, sizes, targets = [], [], []
    for first, end in itertools.pairwise(bounds):
        window_starts = np.arange(first, max(first + 1, end - length + stride), stride)
        window_sizes = np.minimum(length, end - window_starts)
        starts.append(window_starts)
        sizes.append(window_sizes)
        targets.append(np.diff(window_starts + window_sizes, prepend=first))
    return np.concatenate(starts), np.concatenate(sizes), np.concatenate(targets)
