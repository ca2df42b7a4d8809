"""Masks that differ from row to row of a batch: they hold arrays whose first axis is the batch."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.masks.mask import Mask
from tfm.sharding import take_positions


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


@struct.dataclass
class Padding(Mask):
    """See `padding`."""

    valid: Array

    key_only = True
    shardable = True

    def check(self, batch, queries, keys):
        _check_shape("padding: valid", self.valid, batch, keys, "keys")

    def __call__(self, i, j):
        return take_positions(self.valid, j)[:, None, :]


@struct.dataclass
class Segments(Mask):
    """See `segments`."""

    queries: Array
    keys: Array

    shardable = True

    def check(self, batch, queries, keys):
        _check_shape("segments: ids of queries", self.queries, batch, queries, "queries")
        _check_shape("segments: ids of keys", self.keys, batch, keys, "keys")

    def __call__(self, i, j):
        return take_positions(self.queries, i)[:, :, None] == take_positions(self.keys, j)[:, None, :]

    def live_blocks(self, block_q, block_k, queries, keys):
        (first_i, last_i), (first_j, last_j) = block_range(self.queries, block_q), block_range(self.keys, block_k)
        overlap = (first_i[:, :, None] <= last_j[:, None]) & (first_j[:, None] <= last_i[:, :, None])
        return overlap.any(0)

    @property
    def segment_ids(self):
        return self.queries, self.keys


@struct.dataclass
class Prefix(Mask):
    """See `prefix`."""

    lengths: Array

    key_only = True
    shardable = True

    def check(self, batch, queries, keys):
        _check_shape("prefix: lengths", self.lengths, batch)

    def __call__(self, i, j):
        return (j < self.lengths[:, None])[:, None, :]

    @property
    def key_lengths(self):
        return self.lengths


@struct.dataclass
class LeftPadding(Mask):
    """See `left_padding`."""

    starts: Array

    key_only = True
    shardable = True

    def check(self, batch, queries, keys):
        _check_shape("left_padding: starts", self.starts, batch)

    def __call__(self, i, j):
        return (j >= self.starts[:, None])[:, None, :]


def _check_shape(name: str, array: Array, batch: int | None, length: int | None = None, of: str = "") -> None:
    """Raises ValueError unless an array is [B] or, with a length, [B,length]; B may be 1, or any without a batch."""
    shape = ("B" if batch is None else batch, *(() if length is None else (length,)))
    fits = array.ndim == len(shape) and array.shape[1:] == shape[1:] and (batch is None or len(array) in (1, batch))
    if not fits:
        meaning = "" if length is None else f", for {length} {of}"
        raise ValueError(f"{name} must be [{','.join(map(str, shape))}]{meaning}, not {list(array.shape)}")


def block_range(x: Array, block: int) -> tuple[Array, Array]:
    """Integers x [B,T] -> the smallest and the largest of each block of positions [B,P]."""
    padded = jnp.pad(x, ((0, 0), (0, -x.shape[1] % block)), mode="edge").reshape(len(x), -1, block)
    return padded.min(-1), padded.max(-1)
