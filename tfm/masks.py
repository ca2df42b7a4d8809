"""Masks are small objects that answer one question: may query position i see key position j?

They combine with `&` and `|`, hold arrays where the answer depends on the example, and are pytrees. Dense, chunked and
cached attention ask the same object, each at the positions that it works on.

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
        return Window(_smaller(first.left, second.left), _smaller(first.right, second.right))


@struct.dataclass
class Either(Pair):
    """Allows a pair if at least one of two masks allows it."""

    def __call__(self, i, j):  # noqa: D102
        return self.first(i, j) | self.second(i, j)

    def blocks(self, block_q, block_k, queries, keys):  # noqa: D102
        return self.first.blocks(block_q, block_k, queries, keys) | self.second.blocks(block_q, block_k, queries, keys)


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
        smallest = smallest if self.left is None else np.maximum(smallest, -self.left)
        largest = largest if self.right is None else np.minimum(largest, self.right)
        return smallest <= largest

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

    def check(self, batch, queries, keys):  # noqa: D102
        _check_shape("padding: valid", self.valid, batch, keys, "keys")

    def __call__(self, i, j):  # noqa: D102
        return take_positions(self.valid, j)[:, None, :]


@struct.dataclass
class Segments(Mask):
    """See `segments`."""

    queries: Array
    keys: Array

    shardable = True

    def check(self, batch, queries, keys):  # noqa: D102
        _check_shape("segments: ids of queries", self.queries, batch, queries, "queries")
        _check_shape("segments: ids of keys", self.keys, batch, keys, "keys")

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

    def check(self, batch, queries, keys):  # noqa: D102
        _check_shape("prefix: lengths", self.lengths, batch)

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

    def check(self, batch, queries, keys):  # noqa: D102
        _check_shape("left_padding: starts", self.starts, batch)

    def __call__(self, i, j):  # noqa: D102
        return (j >= self.starts[:, None])[:, None, :]


def causal() -> Mask:
    """No position sees a later one."""
    return Window(None, 0)


def window(left: int | None, right: int | None) -> Mask:
    """A position sees `left` positions before itself and `right` after; None means all positions on that side."""
    return Window(left, right)


def strided(stride: int) -> Mask:
    """A position sees those at distances that are multiples of the stride.

    Strided attention (Child et al. 2019, section 4.2): `causal() & (window(n, 0) | strided(n))`.
    Dilated window (Beltagy et al. 2020, section 3.1): `window(n * d, n * d) & strided(d)`.
    """
    if stride < 1:
        raise ValueError(f"stride={stride} must be at least 1")
    return Strided(stride)


def padding(valid: Array) -> Mask:
    """Keys that exist: valid [B,S], True for a token and False for padding."""
    return Padding(jnp.asarray(valid, bool))


def segments(queries: Array, keys: Array | None = None) -> Mask:
    """Positions see those of their own segment: ids [B,T], and [B,S] where the keys are another sequence."""
    return Segments(jnp.asarray(queries), jnp.asarray(queries if keys is None else keys))


def prefix(lengths: Array) -> Mask:
    """Every position sees the first `lengths` [B] keys.

    Prefix language model (Raffel et al. 2020, section 3.2.1): `causal() | prefix(n)`.
    """
    return Prefix(jnp.asarray(lengths))


def left_padding(starts: Array) -> Mask:
    """Every position sees the keys from `starts` [B] on; the keys before them are padding."""
    return LeftPadding(jnp.asarray(starts))


def _check_shape(what: str, array: Array, batch: int | None, length: int | None = None, of: str = "") -> None:
    """Raises ValueError unless an array is [B] or, with a length, [B,length]; B may be 1, or any without a batch."""
    shape = ("B" if batch is None else batch, *(() if length is None else (length,)))
    fits = array.ndim == len(shape) and array.shape[1:] == shape[1:] and (batch is None or len(array) in (1, batch))
    if not fits:
        meaning = "" if length is None else f", for {length} {of}"
        raise ValueError(f"{what} must be [{','.join(map(str, shape))}]{meaning}, not {list(array.shape)}")


def _smaller(a: int | None, b: int | None) -> int | None:
    """The smaller of two bounds; None is no bound."""
    return min((bound for bound in (a, b) if bound is not None), default=None)


def _distances(block_q: int, block_k: int, queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest distance j - i, int [P,Q], of queries i and keys j of two blocks."""
    first_i, first_j = np.arange(0, queries, block_q)[:, None], np.arange(0, keys, block_k)[None]
    last_i, last_j = np.minimum(first_i + block_q, queries) - 1, np.minimum(first_j + block_k, keys) - 1
    return first_j - last_i, last_j - first_i
