"""Texts that are longer than a row: overlapping windows of their tokens, and which window knows a token best."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class TextWindows(NamedTuple):
    """Windows of several texts, in their order: window w holds tokens starts[w] to ends[w] - 1 of text texts[w]."""

    texts: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


def cut(lengths: Sequence[int], sizes: int | Sequence[int], stride: int) -> TextWindows:
    """Windows of texts, by counts of tokens: at most `sizes` tokens each (of every text, or of all), `stride` apart.

    The last window of a text ends at its end. A text without tokens has one empty window. Raises ValueError where
    windows would leave tokens out, or hold none.
    """
    limits = np.broadcast_to(np.asarray(sizes), (len(lengths),))
    windows: list[tuple[int, int, int]] = []
    for text, (length, size) in enumerate(zip(lengths, limits.tolist(), strict=True)):
        if size < 1:
            raise ValueError(f"a window of {size} tokens has no room for text {text + 1}")
        step = min(stride, size)
        count = 1 + max(0, -(-(length - size) // step))
        windows += [(text, n * step, min(n * step + size, length)) for n in range(count)]
    return TextWindows(*np.array(windows, np.int64).reshape(-1, 3).T)


def best_windows(windows: TextWindows, lengths: Sequence[int]) -> list[np.ndarray]:
    """For every text the window of each of its tokens, int [tokens]: the one in which it has the most context.

    That is the smaller count of tokens on its two sides, and, among equal ones, the longer window, then the first
    (BERT's "max context").
    """
    context = [np.full(length, -1.0) for length in lengths]
    best = [np.zeros(length, np.int64) for length in lengths]
    for window, (text, start, end) in enumerate(zip(*windows, strict=True)):
        places = np.arange(end - start)
        score = np.minimum(places, places[::-1]) + 0.01 * (end - start)
        better = score > context[text][start:end]
        best[text][start:end][better] = window
        context[text][start:end][better] = score[better]
    return best
