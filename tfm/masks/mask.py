"""Masks are small objects that answer one question: may query position i see key position j?

They combine with `&` and `|`, hold arrays where the answer depends on the example, and are pytrees. Dense, chunked and
cached attention ask the same object, each at the positions that it works on.

A mask without arrays is static: kernels know it at compile time. `mask.blocks` says which blocks of keys they can skip,
`mask.live_blocks` which ones they can skip for these arrays.
"""

import functools
import math
from functools import reduce
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

# Scores of forbidden pairs. Finite, so that a query that may see nothing averages all values instead of giving NaN.
MASK_VALUE = -1e30

# Pairs that are counted; of longer texts these are the pairs of some queries, spread evenly. So many are looked at
# together.
MOST, TOGETHER = 1 << 24, 1 << 20

# Multiples of the golden ratio fall into no period of a pattern.
GOLDEN = 0.6180339887498949

# Positions as an array of jax or of numpy.
Places = TypeVar("Places", Array, np.ndarray)


class Mask:
    """`mask(i, j)`: query positions i [B or 1, T], key positions j [B or 1, S] -> bool [B or 1, T or 1, S].

    Kernels read `blocks` and the properties. The defaults are right for every mask; a subclass may know better.
    """

    def __call__(self, i: Array, j: Array) -> Array:
        """True where query positions i may see key positions j."""
        raise NotImplementedError

    def __and__(self, mask: "Mask") -> "Mask":
        return Both(self, mask)

    def __or__(self, mask: "Mask") -> "Mask":
        return Either(self, mask)

    def __invert__(self) -> "Mask":
        return Not(self)

    def between(self, first_i: Places, last_i: Places, first_j: Places, last_j: Places) -> Places:
        """bool [P,Q]: whether queries from first_i to last_i [P,1] may see any key from first_j to last_j [1,Q].

        True where the answer depends on arrays. The positions are arrays of numpy or jax, and so is the answer.
        """
        return (first_i <= last_i) & (first_j <= last_j)

    def blocks(self, block_q: int, block_k: int, queries: int, keys: int) -> np.ndarray:
        """bool [P,Q]: whether a block of block_q queries may see anything of a block of block_k keys. Static.

        P = ceil(queries / block_q), Q = ceil(keys / block_k). True wherever the answer depends on arrays.
        """
        (first_i, last_i), (first_j, last_j) = block_ends(block_q, queries), block_ends(block_k, keys)
        return self.between(first_i[:, None], last_i[:, None], first_j[None], last_j[None])

    def live_blocks(self, block_q: int, block_k: int, queries: int, keys: int) -> np.ndarray | Array:
        """As `blocks`, by the arrays of the mask too: an array of numpy, or of jax where arrays have a say."""
        return self.blocks(block_q, block_k, queries, keys)

    def dense(self, queries: int, keys: int | None = None) -> Array:
        """The mask of all positions, bool [B or 1, T, S]; by default there are as many keys as queries.

        Raises ValueError if an array of the mask has another length.
        """
        keys = queries if keys is None else keys
        self.check(None, queries, keys)
        i, j = jnp.arange(queries)[None], jnp.arange(keys)[None]
        allowed = self(i, j)
        return jnp.broadcast_to(allowed, (allowed.shape[0], i.size, j.size))

    def check(self, batch: int | None, queries: int, keys: int) -> None:
        """Raises ValueError if an array of the mask has another size than what it masks; None: of any batch. Static."""

    @property
    def is_static(self) -> bool:
        """Whether the mask holds no arrays."""
        return not jax.tree.leaves(self)

    @property
    def key_only(self) -> bool:
        """Whether the answer depends on the key position alone, not on the query position."""
        return False

    @property
    def shardable(self) -> bool:
        """Whether the first axis of every array is the batch (or has size 1), so that devices take their own rows."""
        return self.is_static

    @property
    def conjuncts(self) -> tuple["Mask", ...]:
        """The masks of which this mask is the conjunction (`&`)."""
        return (self,)

    @property
    def reach(self) -> tuple[int | None, int | None]:
        """How far before and behind its query an allowed key can be; None: at any distance."""
        return None, None

    @property
    def spacing(self) -> int:
        """A number of which every allowed distance is a multiple."""
        return 1

    @property
    def disjuncts(self) -> tuple["Mask", ...]:
        """The masks of which this mask is the disjunction (`|`)."""
        return (self,)

    @property
    def shift_invariant(self) -> bool:
        """Whether the answer depends on the distance j - i alone."""
        return False

    @property
    def segment_ids(self) -> tuple[Array, Array] | None:
        """Ids [B,T] of queries and [B,S] of keys if exactly the pairs with equal ids are allowed; else None."""
        return None

    @property
    def in_one_text(self) -> "Mask":
        """This mask in rows of one text each; static where only the places of texts are arrays."""
        return self

    @property
    def key_lengths(self) -> Array | None:
        """The lengths [B] if the keys before them are all that is allowed; else None."""
        return None


@struct.dataclass
class Pair(Mask):
    """Abstract: two masks as one."""

    first: Mask
    second: Mask

    def check(self, batch, queries, keys):
        self.first.check(batch, queries, keys)
        self.second.check(batch, queries, keys)

    @property
    def key_only(self):
        return self.first.key_only and self.second.key_only

    @property
    def shardable(self):
        return self.first.shardable and self.second.shardable

    @property
    def shift_invariant(self):
        return self.first.shift_invariant and self.second.shift_invariant


@struct.dataclass
class Both(Pair):
    """Allows a pair if both masks allow it."""

    def __call__(self, i, j):
        return self.first(i, j) & self.second(i, j)

    def between(self, *positions):
        return self.first.between(*positions) & self.second.between(*positions)

    def live_blocks(self, *sizes):
        return self.first.live_blocks(*sizes) & self.second.live_blocks(*sizes)

    @property
    def conjuncts(self):
        return self.first.conjuncts + self.second.conjuncts

    @property
    def reach(self):
        (left, right), (left2, right2) = self.first.reach, self.second.reach
        return _smaller_bound(left, left2), _smaller_bound(right, right2)

    @property
    def spacing(self):
        return math.lcm(self.first.spacing, self.second.spacing)


@struct.dataclass
class Either(Pair):
    """Allows a pair if at least one of two masks allows it."""

    def __call__(self, i, j):
        return self.first(i, j) | self.second(i, j)

    def between(self, *positions):
        return self.first.between(*positions) | self.second.between(*positions)

    def live_blocks(self, *sizes):
        return self.first.live_blocks(*sizes) | self.second.live_blocks(*sizes)

    @property
    def reach(self):
        (left, right), (left2, right2) = self.first.reach, self.second.reach
        return _larger_bound(left, left2), _larger_bound(right, right2)

    @property
    def disjuncts(self):
        return self.first.disjuncts + self.second.disjuncts


@struct.dataclass
class Not(Mask):
    """Allows a pair if a mask forbids it."""

    mask: Mask

    def __call__(self, i, j):
        return ~self.mask(i, j)

    def check(self, batch, queries, keys):
        self.mask.check(batch, queries, keys)

    @property
    def key_only(self):
        return self.mask.key_only

    @property
    def shardable(self):
        return self.mask.shardable


def visible_pairs(mask: Mask | None, queries: int, keys: int) -> tuple[int, int]:
    """Pairs that the static parts of a mask allow where one text fills a row, and the pairs of which they are a part.

    These are all pairs, or those that causality leaves where the mask is causal: a causal mask alone allows all of
    them. Pairs whose answer depends on arrays are allowed. Both are counts of some queries where texts are very long.
    """
    static: tuple[Mask, ...] = ()
    for conjunct in () if mask is None else mask.conjuncts:
        part = conjunct.in_one_text
        static += (part,) if part.is_static else ()
    return _static_pairs(static, queries, keys) if static else (queries * keys, queries * keys)


@functools.lru_cache(maxsize=256)
def _static_pairs(masks: tuple[Mask, ...], queries: int, keys: int) -> tuple[int, int]:
    """Visible pairs of a conjunction of static masks, and the pairs of which they are a part."""
    rows = np.arange(queries)
    if queries * keys > MOST:
        rows = np.unique((np.arange(1, 1 + max(1, MOST // keys)) * GOLDEN % 1 * queries).astype(int))
    bounds = [bound for mask in masks if (bound := mask.reach[1]) is not None]
    offset = keys - queries  # queries are the last positions
    is_causal = bool(bounds) and min(bounds) <= offset
    total = int(np.minimum(keys, rows + offset + 1).clip(0).sum()) if is_causal else len(rows) * keys
    j, visible = np.arange(keys)[None], 0
    for strip in np.array_split(rows, -(-len(rows) * keys // TOGETHER) or 1):
        i = strip[:, None]
        allowed: np.ndarray = reduce(np.logical_and, [mask.between(i, i, j, j) for mask in masks])
        visible += int(np.broadcast_to(allowed, (len(strip), keys)).sum())
    return visible, total


def blocks_in_sight(mask: Mask | None, block: int, queries: int, keys: int) -> int:
    """The blocks of queries and keys in which a mask may allow a pair, where one text fills a row; each block of
    queries has one at least."""
    visible = np.ones((-(-queries // block), -(-keys // block)), bool)
    for part in () if mask is None else mask.conjuncts:
        visible = visible & part.in_one_text.blocks(block, block, queries, keys)
    return int(visible.sum(1).clip(1).sum())


def block_ends(block: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last position of each block of a sequence, int [P]."""
    first = np.arange(0, length, block)
    return first, np.minimum(first + block, length) - 1


def _smaller_bound(a: int | None, b: int | None) -> int | None:
    """The smaller of two bounds; None is no bound."""
    return min((bound for bound in (a, b) if bound is not None), default=None)


def _larger_bound(a: int | None, b: int | None) -> int | None:
    """The larger of two bounds; None is no bound."""
    return None if a is None or b is None else max(a, b)
