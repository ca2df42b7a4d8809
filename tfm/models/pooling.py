"""One vector of a text, out of the hidden states of its tokens."""

import jax.numpy as jnp
from jax import Array

from tfm.sharding import replicate_length, take_positions


def pool(hidden: Array, valid: Array | None = None, kind: str = "mean") -> Array:
    """hidden [B,T,D] -> [B,D], in the same dtype; valid [B,T] is True for a token and False for padding.

    kind: mean | first | last | max | ends, over the tokens that are no padding. Raises ValueError for another kind.
    """
    if kind not in POOLS:
        raise ValueError(f"kind={kind!r} pools nothing; choose {', '.join(POOLS)}")
    return POOLS[kind](hidden, valid)


def mean(hidden: Array, valid: Array | None = None) -> Array:
    """hidden [B,T,D], valid [B,T] -> [B,D]: the mean over the tokens that are no padding, in float32."""
    wide = hidden.astype(jnp.float32)
    if valid is None:
        return wide.mean(1).astype(hidden.dtype)
    weights = valid.astype(jnp.float32)[:, :, None]
    return ((wide * weights).sum(1) / jnp.maximum(weights.sum(1), 1)).astype(hidden.dtype)


def first(hidden: Array, valid: Array | None = None) -> Array:
    """hidden [B,T,D] -> [B,D]: the state of the first token, [CLS] in BERT."""
    return replicate_length(hidden)[:, 0]


def last(hidden: Array, valid: Array | None = None) -> Array:
    """hidden [B,T,D], valid [B,T] -> [B,D]: the last token that is no padding; that of a decoder has read all."""
    if valid is None:
        return replicate_length(hidden)[:, -1]
    places = jnp.arange(hidden.shape[1], dtype=jnp.int32)
    where = jnp.where(valid.astype(bool), places[None], jnp.int32(0)).max(1, keepdims=True)
    return take_positions(hidden, where)[:, 0]


def maximum(hidden: Array, valid: Array | None = None) -> Array:
    """hidden [B,T,D], valid [B,T] -> [B,D]: the largest value of every feature; 0 for a text without tokens."""
    if valid is None:
        return hidden.max(1)
    is_token = valid.astype(bool)[:, :, None]
    values = jnp.where(is_token, hidden, jnp.finfo(hidden.dtype).min).max(1)
    return jnp.where(is_token.any(1), values, jnp.zeros((), hidden.dtype))


def ends(hidden: Array, valid: Array | None = None) -> Array:
    """hidden [B,T,D] of two directions of reading -> [B,D]: each where it has read all, the first half of the last
    token and the second half of the first."""
    half = hidden.shape[-1] // 2
    return jnp.concatenate([last(hidden, valid)[:, :half], first(hidden)[:, half:]], axis=-1)


POOLS = {"first": first, "mean": mean, "last": last, "max": maximum, "ends": ends}
