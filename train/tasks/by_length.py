"""Rows in batches of similar lengths: little padding, and a program for every bucket of lengths."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tfm
from train.data.batching import length_sorted_batches
from train.screens.finite import checked

# Batches whose rows are sorted together: enough for similar lengths, few enough for their fields to fit into memory.
BATCHES = 64


def blocks(count: int, batch: int) -> Iterator[range]:
    """The numbers of rows that are sorted together, in order."""
    size = BATCHES * batch
    return (range(start, min(start + size, count)) for start in range(0, count, size))


def read_by_length(
    function: Callable[..., Any],
    params: Any,
    model: tfm.Config,
    fields: tuple[np.ndarray, ...],
    valid: np.ndarray,
    batch: int,
    advance: Callable[[int], None],
) -> list[np.ndarray]:
    """function(params, model, *fields) -> a result for every row, in the order of the rows.

    fields: arrays [N,...,T], of which a batch has as many places as its longest row needs
    valid: 1 or 0 [N,...,T], which places hold tokens; tokens come first
    batch: rows that are read at a time
    """
    longest, keeps_length = valid.shape[-1], _reads_padding(model)
    sizes = (valid > 0).sum(-1).reshape(len(valid), -1).max(-1, initial=1).tolist()
    results: list[np.ndarray] = [np.empty(0)] * len(sizes)
    for rows, count in length_sorted_batches(sizes, min(batch, len(sizes))):
        length = longest if keeps_length else min(tfm.bucket(sizes[rows[-1]]), longest)
        arrays = np.asarray(checked(function, params, model, *(field[rows, ..., :length] for field in fields)))
        for row, array in zip(rows[:count].tolist(), arrays, strict=False):
            results[row] = array
        advance(count)
    return results


def _reads_padding(model: tfm.Config) -> bool:
    """Whether a result depends on the padding of its row, so that all rows need the length of those of training."""
    return any(getattr(kind.mixer, "reads_padding", False) for kind in model.kinds)
