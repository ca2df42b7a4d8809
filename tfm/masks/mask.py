"""Masks are small objects that answer one question: may query position i see key position j?

They combine with `&` and `|`, hold arrays where the answer depends on the example, and are pytrees. Dense, chunked and
cached attention ask the same object, each at the positions that it works on.

A mask without arrays is static: kernels know it at compile time. `mask.blocks` says which blocks of keys they can skip.
"""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

if TYPE_CHECKING:
    from tfm.masks.distance import Window

# Scores of forbidden pairs. Finite, so that a query that may see nothing averages all values instead of giving NaN.
MASK_VALUE = -1e30


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

    def blocks(self, block_q: int, block_k: int, queries: int, keys: int) -> np.ndarray:
        """bool [P,Q]: whether a block of block_q queries may see anything of a block of block_k keys. Static.

        P = ceil(queries / block_q), Q = ceil(keys / block_k). True wherever the answer depends on arrays.
        """
        return np.ones((-(-queries // block_q), -(-keys // block_k)), bool)

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
    def as_window(self) -> "Window | None":
        """This mask as one `Window`; None if it is no window."""
        return None

    @property
    def segment_ids(self) -> tuple[Array, Array] | None:
        """Ids [B,T] of queries and [B,S] of keys if exactly the pairs with equal ids are allowed; else None."""
        return None

    @property
    def key_lengths(self) -> Array | None:
        """The lengths [B] if exactly the first so many keys are allowed; else None."""
        return None


@struct.dataclass
class Pair(Mask):
    """Abstract: two masks as one."""

    first: Mask
    second: Mask

    def check(self, batch, queries, keys):  # noqa: D102
        self.first.check(batch, queries, keys)
        self.second.check(batch, queries, keys)

    @property
    def key_only(self):  # noqa: D102
        return self.first.key_only and self.second.key_only

    @property
    def shardable(self):  # noqa: D102
        return self.first.shardable and self.second.shardable


@struct.dataclass
class Both(Pair):
    """Allows a pair if both masks allow it."""

    def __call__(self, i, j):  # noqa: D102
        return self.first(i, j) & self.second(i, j)

    def blocks(self, block_q, block_k, queries, keys):  # noqa: D102
        return self.first.blocks(block_q, block_k, queries, keys) & self.second.blocks(block_q, block_k, queries, keys)

    @property
    def conjuncts(self):  # noqa: D102
        return self.first.conjuncts + self.second.conjuncts

    @property
    def as_window(self):  # noqa: D102
        first, second = self.first.as_window, self.second.as_window
        if first is None or second is None:
            return None
        return first.intersection(second)


@struct.dataclass
class Either(Pair):
    """Allows a pair if at least one of two masks allows it."""

    def __call__(self, i, j):  # noqa: D102
        return self.first(i, j) | self.second(i, j)

    def blocks(self, block_q, block_k, queries, keys):  # noqa: D102
        return self.first.blocks(block_q, block_k, queries, keys) | self.second.blocks(block_q, block_k, queries, keys)
