"""Masks are small objects that answer one question: may query position i see key position j?

They combine with `&` and `|`, hold arrays where the answer depends on the example, and are pytrees, so they pass
through `jit`, `vmap` and `scan`. Dense, chunked and cached attention ask the same object, each at the positions it
works on.

A mask without arrays is static: kernels know it at compile time. `mask.blocks` says which blocks of keys they can skip.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.sharding import take_positions

# Scores of forbidden pairs. Finite, so that a query that may see nothing averages all values instead of giving NaN.
MASK_VALUE = -1e30


class Mask:
    """`mask(i, j)`: query positions i [B or 1, T], key positions j [B or 1, S] -> bool [B or 1, T or 1, S]: True if i
    may see j.

    Kernels read the properties below. Their defaults are right for every mask; a subclass overrides those that it can
    answer better.
    """

    def __call__(self, i: Array, j: Array) -> Array:
        """Whether query positions i may see key positions j."""
        raise NotImplementedError

    def __and__(self, mask: "Mask") -> "Mask":
        return Both(self, mask)

    def __or__(self, mask: "Mask") -> "Mask":
        return Either(self, mask)

    def blocks(self, block_q: int, block_k: int, queries: int, keys: int) -> np.ndarray:
        """bool [P,Q]: may one of block_q queries see one of block_k keys? Static, and True wherever the answer depends
        on arrays.

        The last of P = ceil(queries / block_q) and of Q = ceil(keys / block_k) blocks may be shorter.
        """
        return np.ones((-(-queries // block_q), -(-keys // block_k)), bool)

    def dense(self, queries: int, keys: int | None = None) -> Array:
        """The mask of all positions, bool [B or 1, T, S]; by default there are as many keys as queries."""
        i, j = jnp.arange(queries)[None], jnp.arange(keys or queries)[None]
        allowed = self(i, j)
        return jnp.broadcast_to(allowed, (allowed.shape[0], i.size, j.size))

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
        """Whether devices that share a batch may cut the arrays along their first axis: it is the batch, has size 1, or
        is absent."""
        return self.is_static

    @property
    def conjuncts(self) -> tuple["Mask", ...]:
        """Masks that allow a pair together where this mask allows it."""
        return (self,)

    @property
    def as_window(self) -> "Window | None":
        """The same mask as a `Window`; None if it is no window."""
        return None

    @property
    def segment_ids(self) -> tuple[Array, Array] | None:
        """Segments [B,T] of queries and [B,S] of keys if pairs of equal segments are allowed, and no others; else
        None."""
        return None

    @property
    def key_lengths(self) -> Array | None:
        """The number [B] of first keys if these are allowed, and no others; else None."""
        return None


@struct.dataclass
class Both(Mask):
    """Allows a pair if both masks allow it."""

    first: Mask
    second: Mask

    def __call__(self, i, j):  # noqa: D102
        return self.first(i, j) & self.second(i, j)

    def blocks(self, block_q, block_k, queries, keys):  # noqa: D102
        return self.first.blocks(block_q, block_k, queries, keys) & self.second.blocks(block_q, block_k, queries, keys)

    @property
    def key_only(self):  # noqa: D102
        return self.first.key_only and self.second.key_only

    @property
    def shardable(self):  # noqa: D102
        return self.first.shardable and self.second.shardable

    @property
    def conjuncts(self):  # noqa: D102
        return self.first.conjuncts + self.second.conjuncts

    @property
    def as_window(self):  # noqa: D102
        first, second = self.first.as_window, self.second.as_window
        if first is None or second is None:
            return None
        return Window(_smaller(first.left, second.left), _smaller(first.right, second.right))


@struct.dataclass
class Either(Mask):
    """Allows a pair if at least one of two masks allows it."""

    first: Mask
    second: Mask

    def __call__(self, i, j):  # noqa: D102
        return self.first(i, j) | self.second(i, j)

    def blocks(self, block_q, block_k, queries, keys):  # noqa: D102
        return self.first.blocks(block_q, block_k, queries, keys) | self.second.blocks(block_q, block_k, queries, keys)

    @property
    def key_only(self):  # noqa: D102
        return self.first.key_only and self.second.key_only

    @property
    def shardable(self):  # noqa: D102
        return self.first.shardable and self.second.shardable


@struct.dataclass
class Window(Mask):
    """See `causal` and `window`."""

    left: int | None = struct.field(pytree_node=False)
    right: int | None = struct.field(pytree_node=False)

    def __call__(self, i, j):  # noqa: D102
        distance = j[:, None, :] - i[:, :, None]
        allowed = distance == distance
        if self.left is not None:
            allowed &= distance >= -self.left
        if self.right is not None:
            allowed &= distance <= self.right
        return allowed

    def blocks(self, block_q, block_k, queries, keys):  # noqa: D102
        smallest, largest = _distances(block_q, block_k, queries, keys)
        visible = np.ones(smallest.shape, bool)
        if self.left is not None:
            visible &= largest >= -self.left
        if self.right is not None:
            visible &= smallest <= self.right
        if self.left is not None and self.right is not None:
            visible &= self.left + self.right >= 0
        return visible

    @property
    def as_window(self):  # noqa: D102
        return self


@struct.dataclass
class Strided(Mask):
    """See `strided`."""

    stride: int = struct.field(pytree_node=False)

    def __call__(self, i, j):  # noqa: D102
        return (j[:, None, :] - i[:, :, None]) % self.stride == 0

    def blocks(self, block_q, block_k, queries, keys):  # noqa: D102
        smallest, largest = _distances(block_q, block_k, queries, keys)
        return largest // self.stride > (smallest - 1) // self.stride  # a multiple of the stride lies between them


@struct.dataclass
class Padding(Mask):
    """See `padding`."""

    valid: Array

    key_only = True
    shardable = True

    def __call__(self, i, j):  # noqa: D102
        return take_positions(self.valid, j)[:, None, :]


@struct.dataclass
class Segments(Mask):
    """See `segments`."""

    queries: Array
    keys: Array

    shardable = True

    def __call__(self, i, j):  # noqa: D102
        return take_positions(self.queries, i)[:, :, None] == take_positions(self.keys, j)[:, None, :]

    @property
    def segment_ids(self):  # noqa: D102
        return self.queries, self.keys


@struct.dataclass
class Prefix(Mask):
    """See `prefix`."""

    lengths: Array

    key_only = True
    shardable = True

    def __call__(self, i, j):  # noqa: D102
        return (j < self.lengths[:, None])[:, None, :]

    @property
    def key_lengths(self):  # noqa: D102
        return self.lengths


@struct.dataclass
class LeftPadding(Mask):
    """See `left_padding`."""

    starts: Array

    key_only = True
    shardable = True

    def __call__(self, i, j):  # noqa: D102
        return (j >= self.starts[:, None])[:, None, :]


@struct.dataclass
class Constant(Mask):
    """Allows all pairs or none: `allowed` is a bool scalar."""

    allowed: Array

    key_only = True
    shardable = True

    def __call__(self, i, j):  # noqa: D102
        return jnp.broadcast_to(self.allowed, (1, i.shape[1], j.shape[1]))


def causal() -> Mask:
    """No position sees a later one."""
    return Window(None, 0)


def window(left: int | None, right: int | None) -> Mask:
    """A position sees `left` positions before itself and `right` after; None means all positions on that side."""
    return Window(left, right)


def strided(stride: int) -> Mask:
    """A position sees those at distances that are multiples of the stride.

    `causal() & (window(n, 0) | strided(n))` is the strided pattern of Child et al. 2019 (section 4.2), `window(n * d, n
    * d) & strided(d)` the dilated window of Beltagy et al. 2020 (section 3.1).
    """
    if stride < 1:
        raise ValueError(f"stride={stride} must be at least 1")
    return Strided(stride)


def padding(valid: Array) -> Mask:
    """Keys that exist: valid [B,S], True for a token and False for padding."""
    return Padding(jnp.asarray(valid, bool))


def segments(queries: Array, keys: Array | None = None) -> Mask:
    """Positions see those of their own segment: ids [B,T], and [B,S] where the keys are another sequence."""
    return Segments(queries, queries if keys is None else keys)


def prefix(lengths: Array) -> Mask:
    """Every position sees the first `lengths` [B] keys; `causal() | prefix(n)` is the prefix language model (Raffel et
    al. 2020)."""
    return Prefix(lengths)


def left_padding(starts: Array) -> Mask:
    """Every position sees the keys from `starts` [B] on; the keys before them are padding."""
    return LeftPadding(starts)


def _smaller(a: int | None, b: int | None) -> int | None:
    """The smaller of two bounds; None is no bound."""
    if a is None or b is None:
        return b if a is None else a
    return min(a, b)


def _distances(block_q: int, block_k: int, queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest distance j - i, int [P,Q], of a query i in a block of queries and a key j in a block
    of keys."""
    first_i, first_j = np.arange(0, queries, block_q)[:, None], np.arange(0, keys, block_k)[None]
    last_i, last_j = np.minimum(first_i + block_q, queries) - 1, np.minimum(first_j + block_k, keys) - 1
    return first_j - last_i, last_j - first_i
