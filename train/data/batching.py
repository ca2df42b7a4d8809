"""Batches of rows for inference: few shapes, so that few compiled programs serve all batches."""

from collections.abc import Iterator, Sequence

import numpy as np


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
