"""How many of all pairs of a query and a key a mask leaves."""

import functools
from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np

from tfm.masks.mask import Mask

# Pairs that are looked at; of longer texts these are the pairs of some queries, spread evenly.
MOST = 1 << 24

# Pairs that are looked at together.
TOGETHER = 1 << 20

# Multiples of the golden ratio fall into no period of a pattern.
GOLDEN = 0.6180339887498949


def visible_pairs(mask: Mask | None, queries: int, keys: int) -> tuple[int, int]:
    """Pairs that the static parts of a mask allow where one text fills a row, and the pairs of which they are a part.

    These are all pairs, or those that causality leaves where the mask is causal: a causal mask alone allows all of
    them. Pairs whose answer depends on arrays are allowed. Both are counts of some queries where texts are very long.
    """
    static = tuple(part for part in _in_one_text(mask) if part.is_static)
    return _visible_pairs(static, queries, keys) if static else (queries * keys, queries * keys)


def blocks_in_sight(mask: Mask | None, block: int, queries: int, keys: int) -> int:
    """The blocks of queries and keys in which a mask may allow a pair, where one text fills a row; each block of
    queries has one at least."""
    everything = np.ones((-(-queries // block), -(-keys // block)), bool)
    visible = [part.blocks(block, block, queries, keys) for part in _in_one_text(mask)]
    return int(reduce(np.logical_and, visible, everything).sum(1).clip(1).sum())


def _in_one_text(mask: Mask | None) -> list[Mask]:
    """The masks of which a mask is the conjunction, where one text fills a row."""
    return [] if mask is None else [part.in_one_text for part in mask.conjuncts]


@functools.lru_cache(maxsize=256)
def _visible_pairs(masks: tuple[Mask, ...], queries: int, keys: int) -> tuple[int, int]:
    """The same of static masks together."""
    rows = np.arange(queries)
    if queries * keys > MOST:
        rows = np.unique((np.arange(1, 1 + max(1, MOST // keys)) * GOLDEN % 1 * queries).astype(int))
    bounds = [bound for mask in masks if (bound := mask.reach[1]) is not None]
    offset = keys - queries  # queries are the last positions
    is_causal = bool(bounds) and min(bounds) <= offset
    total = int(np.minimum(keys, rows + offset + 1).clip(0).sum()) if is_causal else len(rows) * keys
    strips = np.array_split(rows, -(-len(rows) * keys // TOGETHER) or 1)
    return sum(_allowed(masks, strip, keys) for strip in strips), total


def _allowed(masks: Iterable[Mask], rows: np.ndarray, keys: int) -> int:
    """The keys that queries at these positions may see, all together."""
    i, j = rows[:, None], np.arange(keys)[None]
    answers: list[Any] = [mask.between(i, i, j, j) for mask in masks]
    return int(np.broadcast_to(reduce(np.logical_and, answers), (len(rows), keys)).sum())
