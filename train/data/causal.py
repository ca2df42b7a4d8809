"""Rows of a language model: what it reads, and at each place the token that comes next.

Both layouts read a text in which a mark stands before every document and after the last (`train.data.tokens`), so that every token of a
document is a target once, its first one and its end among them:

    text       | the cat sat | on mats |
    tokens     | the cat sat   | on mats
    targets    the cat sat |   on mats |
"""

import itertools

import numpy as np

from train.data import packing
from train.data.tokens import Tokens, ranges


class Packed:
    """Rows of whole documents, or pieces of long ones, each a segment whose positions start at 0; `bytes` is the share of a target."""

    buckets, independent_rows = None, True

    def __init__(self, text: Tokens, length: int, pack: bool, pad: int, bytes_each: float):
        self.text, self.pad, self.bytes_each, self.plan = (
            text,
            pad,
            bytes_each,
            packing.plan(text, length, pack, around=0),
        )
        self.tokens, self.padding = int(text.starts[-1]), self.plan.padding

    def __len__(self):
        return self.plan.rows

    def batch(self, numbers: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields that stand at the top of `train.tasks.lm`."""
        found, segments, positions = packing.spans(self.plan, numbers)
        here, there = (ranges(starts, found.sizes) for starts in (found.places, found.starts))
        batch = _read(self.text, here, there, segments.shape, self.pad) | {"segments": segments, "positions": positions}
        return _weighed(batch, segments > 0, self.bytes_each)


class Windows:
    """Rows that are stretches of the text, `stride` tokens apart, each with targets that no row before it has.

    Training rows lie side by side, and begin a random number of tokens later each time (`jitter`). With `across`, a window knows no
    documents; else each begins and ends within one.
    """

    buckets, independent_rows = None, True

    def __init__(
        self, text: Tokens, length: int, stride: int, pad: int, bytes_each: float, across: bool, jitter: bool = False
    ):
        self.text, self.length, self.pad, self.bytes_each, self.jitter = text, length, pad, bytes_each, jitter
        bounds = text.starts[[0, -1]] if across else text.starts
        self.starts, self.sizes, self.fresh = _windows(bounds, length, stride)
        self.tokens, self.padding = int(text.starts[-1]), 1 - float(self.sizes.sum()) / max(1, len(self.sizes) * length)

    def __len__(self):
        return len(self.starts)

    def batch(self, numbers: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The same fields without segments and positions: a row is one stretch."""
        late = rng.integers(0, self.length, len(numbers)) if self.jitter else np.zeros(len(numbers), int)
        filled = numbers >= 0
        sizes, fresh, starts = (each[numbers[filled]] for each in (self.sizes, self.fresh, self.starts))
        starts = np.minimum(starts + late[filled], self.tokens - sizes)
        places = np.flatnonzero(filled) * self.length
        judged = np.zeros((len(numbers), self.length), bool)
        judged.ravel()[ranges(places + sizes - fresh, fresh)] = True
        batch = _read(self.text, ranges(places, sizes), ranges(starts, sizes), judged.shape, self.pad)
        return _weighed(batch, judged, self.bytes_each)


def _read(text: Tokens, here: np.ndarray, there: np.ndarray, shape: tuple[int, int], pad: int) -> dict[str, np.ndarray]:
    """int32 tokens and targets of a shape [B,T]: what stands `there` in the text, and what comes next, `here` in the rows."""
    tokens, targets = np.full((2, *shape), pad, np.int32)
    tokens.ravel()[here], targets.ravel()[here] = text.ids[there], text.ids[there + 1]
    return {"tokens": tokens, "targets": targets}


def _weighed(batch: dict[str, np.ndarray], judged: np.ndarray, bytes_each: float) -> dict[str, np.ndarray]:
    """The batch with weights [B,T], 1 for a target that counts, and bytes [B] of the text behind these targets."""
    weights = judged.astype(np.float32)
    return {**batch, "weights": weights, "bytes": weights.sum(1) * np.float32(bytes_each)}


def _windows(bounds: np.ndarray, length: int, stride: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start, size and number of fresh targets of the windows on each stretch of the text between two bounds."""
    starts, sizes, fresh = [], [], []
    for begin, end in itertools.pairwise(bounds):
        first = np.arange(begin, max(begin + 1, end - length + stride), stride)
        size = np.minimum(length, end - first)
        ends = first + size
        starts.append(first)
        sizes.append(size)
        fresh.append(np.diff(ends, prepend=begin))
    return np.concatenate(starts), np.concatenate(sizes), np.concatenate(fresh)
