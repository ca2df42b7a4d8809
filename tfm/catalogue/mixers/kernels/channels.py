"""Channels that attend to channels: scores are products of whole columns of queries and keys."""

import jax
import jax.numpy as jnp
from jax import Array

from tfm.ops import dropout


def attend_channels(
    q: Array, k: Array, v: Array, scale: float | Array, rate: float = 0.0, key: Array | None = None
) -> Array:
    """q [B,T,K,G,H], k and v [B,T,K,H] -> [B,T,K,G,H]: each channel of a head is a mean of channels of v.

    Scores [B,K,G,H,H] are products of columns, in float32, times a scale that broadcasts over them. `rate` and `key`
    drop weights.
    """
    scores = jnp.einsum("BTKGh,BTKH->BKGhH", q, k, preferred_element_type=jnp.float32)
    weights = dropout(jax.nn.softmax(scores * scale, axis=-1), rate, key)
    return jnp.einsum("BKGhH,BTKH->BTKGh", weights.astype(v.dtype), v)
