"""Static masks: what a query may see depends on the places of query and key in their text, not on their distance
alone."""

import functools
from collections.abc import Iterable
from functools import reduce
from operator import or_

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.masks.by_example import block_range
from tfm.masks.mask import Mask, Places
from tfm.sharding import named_sharding, spec_of, take_positions


def local_blocks(size: int, before: int = 0, after: int = 0) -> Mask:
    """A position sees the block of `size` positions that it is in, and some blocks before and after that.

    Local attention (Liu et al. 2018, section 4.2.4): `causal() & local_blocks(256)`. Raises ValueError for a size below
    1.
    """
    if size < 1:
        raise ValueError(f"size={size} must be at least 1")
    return LocalBlocks(size, before, after)


def global_tokens(count: int) -> Mask:
    """The first `count` positions see all positions, and all see them (Beltagy et al. 2020, section 3.1)."""
    return GlobalTokens(((0, count),))


def global_places(places: Iterable[int]) -> Mask:
    """The positions `places` see all positions, and all see them (Beltagy et al. 2020, section 3.1)."""
    return GlobalTokens(spans_of(places))


def last_tokens(start: int) -> Mask:
    """The positions from `start` on see all positions, and all see them."""
    return GlobalTokens(((start, None),))


def spans_of(places: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Places in any order -> the spans of neighbouring ones, each from a place up to, but not with, another one."""
    spans: list[tuple[int, int]] = []
    for place in sorted({*places}):
        start = spans.pop()[0] if spans and spans[-1][1] == place else place
        spans.append((start, place + 1))
    return tuple(spans)


def summaries(block: int, count: int) -> Mask:
    """Every position sees the last `count` positions of each block (Child et al. 2019, section 4.3).

    Fixed attention: `causal() & (local_blocks(n) | summaries(n, c))`. Raises ValueError for a count that is not in 1 to
    `block`.
    """
    if not 0 < count <= block:
        raise ValueError(f"count={count} must be at least 1 and at most block={block}")
    return Summaries(block, count)


def chosen_blocks(size: int, table: tuple[tuple[int, ...], ...]) -> Mask:
    """The positions of block n of `size` positions see those of the blocks `table[n]`; rows of the table have one
    length, and -1 stands for no block.

    Random attention (Zaheer et al. 2020, section 2).
    """
    return ChosenBlocks(size, table)


@struct.dataclass
class LocalBlocks(Mask):
    """See `local_blocks`."""

    size: int = struct.field(pytree_node=False)
    before: int = struct.field(pytree_node=False)
    after: int = struct.field(pytree_node=False)

    def __call__(self, i, j):
        distance = j[:, None, :] // self.size - i[:, :, None] // self.size
        return (distance >= -self.before) & (distance <= self.after)

    def between(self, first_i, last_i, first_j, last_j):
        smallest, largest = first_j // self.size - last_i // self.size, last_j // self.size - first_i // self.size
        return (smallest <= self.after) & (largest >= -self.before)

    @property
    def reach(self):
        return (1 + self.before) * self.size - 1, (1 + self.after) * self.size - 1


@struct.dataclass
class GlobalTokens(Mask):
    """See `global_places`; the tokens of spans, from a start to a stop, or to the end where that is None."""

    spans: tuple[tuple[int, int | None], ...] = struct.field(pytree_node=False)

    def __call__(self, i, j):
        return self._any(i, i)[:, :, None] | self._any(j, j)[:, None, :]

    def between(self, first_i, last_i, first_j, last_j):
        return self._any(first_i, last_i) | self._any(first_j, last_j)

    def _any(self, first: Places, last: Places) -> Places:
        """Whether one of the positions from first to last is global."""
        touched = [(last >= start) & (True if stop is None else first < stop) for start, stop in self.spans]
        return reduce(or_, touched, first != first)


@struct.dataclass
class Summaries(Mask):
    """See `summaries`."""

    block: int = struct.field(pytree_node=False)
    count: int = struct.field(pytree_node=False)

    def __call__(self, i, j):
        is_summary = j % self.block >= self.block - self.count
        return is_summary[:, None, :] & (i == i)[:, :, None]

    def between(self, first_i, last_i, first_j, last_j):
        ends_in_summary = last_j % self.block >= self.block - self.count
        return (ends_in_summary | (last_j // self.block > first_j // self.block)) & (first_i <= last_i)


@struct.dataclass
class ChosenBlocks(Mask):
    """See `chosen_blocks`."""

    size: int = struct.field(pytree_node=False)
    table: tuple[tuple[int, ...], ...] = struct.field(pytree_node=False)

    def __call__(self, i, j):
        index = jnp.clip(i // self.size, 0, len(self.table) - 1)
        sharding = named_sharding(index, index, *spec_of(index), None)
        chosen = jnp.asarray(self.table, jnp.int32).at[index].get(out_sharding=sharding)
        return (chosen[:, :, None, :] == (j // self.size)[:, None, :, None]).any(-1)

    def between(self, first_i, last_i, first_j, last_j):
        sums: np.ndarray | Array = _sums(self.table)
        if not isinstance(first_i, np.ndarray):
            sums = jnp.asarray(sums)
        count = len(self.table)
        top, left = ((end // self.size).clip(0, count) for end in (first_i, first_j))
        bottom, right = ((end // self.size + 1).clip(0, count) for end in (last_i, last_j))
        return sums[bottom, right] - sums[bottom, left] > sums[top, right] - sums[top, left]


@struct.dataclass
class Restarted(Mask):
    """A static mask whose positions count from the start of a text: starts [B,T], or [B,1] for all positions of a
    row.

    Rows may hold several texts, or have padding before their text.
    """

    mask: Mask
    starts: Array

    shardable = True

    @property
    def in_one_text(self):
        return self.mask

    @property
    def segment_ids(self):
        if not isinstance(self.mask, LocalBlocks) or self.mask.before or self.mask.after or self.starts.shape[1] == 1:
            return None
        ids = (jnp.arange(self.starts.shape[1])[None] - self.starts) // self.mask.size
        return ids, ids

    def __call__(self, i, j):
        return self.mask(self._place(i), self._place(j))

    def live_blocks(self, block_q, block_k, queries, keys):
        first_i, last_i = block_range(jnp.arange(queries)[None] - self.starts, block_q)
        first_j, last_j = block_range(jnp.arange(keys)[None] - self.starts, block_k)
        return self.mask.between(first_i[:, :, None], last_i[:, :, None], first_j[:, None], last_j[:, None]).any(0)

    def _place(self, positions: Array) -> Array:
        """Positions [B or 1, T] -> their places in their texts [B,T]."""
        if self.starts.shape[1] == 1:
            return positions - self.starts
        return positions - take_positions(self.starts, positions)


@functools.cache
def _sums(table: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """int [n+1,n+1] for a table of n blocks: at (a, b), how many of the first a blocks see how many of the first b."""
    count = len(table)
    chosen = np.zeros((count + 1, count + 1), np.int32)
    for row, columns in enumerate(table):
        for column in columns:
            if 0 <= column < count:
                chosen[row + 1, column + 1] = 1
    return chosen.cumsum(0).cumsum(1)
