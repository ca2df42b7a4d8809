"""Batches of rows for inference: few shapes, so that few compiled programs serve all batches."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

# Tokens of a batch where the length differs from batch to batch.
_BATCH_TOKENS = 4096


def length_sorted_batches(
    lengths: Sequence[int] | Sequence[tuple[int, int]] | np.ndarray, size: int
) -> Iterator[tuple[np.ndarray, int]]:
    """Like `row_batches`, shortest rows first: rows of similar lengths share a batch and need little padding."""
    return row_batches(sorted(range(len(lengths)), key=lengths.__getitem__), size)


def row_batches(order: Sequence[int], size: int) -> Iterator[tuple[np.ndarray, int]]:
    """Row numbers -> batches of row numbers, int [size], and the count of rows in each.

    The last batch may have fewer rows; it repeats its last row up to `size`.
    """
    for start in range(0, len(order), size):
        rows = np.asarray(order[start : start + size])
        yield np.pad(rows, (0, size - len(rows)), mode="edge"), len(rows)


def token_batches(lengths: np.ndarray, window: int) -> Iterator[tuple[np.ndarray, tuple[int, int]]]:
    """Lengths of rows -> members of each batch, and its shape (rows, tokens): few shapes, and little padding.

    The longest come first, so that what does not fit into memory fails at once.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        length = min(_round_up(int(lengths[order[start]])), max(window, int(lengths.max())))
        members = order[start : start + max(1, _BATCH_TOKENS // length)]
        rows = max(1, _BATCH_TOKENS // length)
        yield members, (rows if len(members) == rows else 1 << (len(members) - 1).bit_length(), length)
        start += len(members)


def _round_up(length: int) -> int:
    """8, 12, 16, 24, 32, 48, ...: the next power of two, or three quarters of it."""
    power = 1 << max(3, math.ceil(math.log2(length)))
    return power * 3 // 4 if power > 8 and length <= power * 3 // 4 else power
