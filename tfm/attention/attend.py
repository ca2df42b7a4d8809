"""Scaled dot-product attention on arrays (Vaswani et al. 2017, eq. 1).

Tried on a CPU: other orders of axes, a backward pass of its own (docs/measured.md, M6).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.attention.check import check_attention, check_dropout
from tfm.masks.mask import MASK_VALUE, Mask
from tfm.ops import dropout
from tfm.sharding import positions_like, replicate_length


def attend(
    q: Array,
    k: Array,
    v: Array,
    mask: Mask | None = None,
    bias: ScoreBias | None = None,
    rate: float = 0.0,
    key: Array | None = None,
) -> Array:
    """q [B,T,K,G,H] or [B,T,N,H], k and v [B,S,K,H] -> the shape of q; softmax in float32.

    Scaled dot-product attention (Vaswani et al. 2017, eq. 1). N = K * G query heads share K key/value heads (Ainslie et
    al. 2023). `rate` and `key` drop attention weights. A query that may see no key gets the mean of all values. Raises
    ValueError for shapes that do not fit, a rate outside [0, 1), and a rate without a key.
    """
    check_attention(q, k, v, mask)
    check_dropout(rate, key)
    if q.ndim == k.ndim:
        grouped = q.reshape(*q.shape[:2], k.shape[2], -1, q.shape[-1])
        return attend(grouped, k, v, mask, bias, rate, key).reshape(q.shape)
    weights = dropout(attention_weights(q, k, mask, bias), rate, key)
    return apply_weights(weights, v, bias, positions_like(q), jnp.arange(k.shape[1])[None])


def apply_weights(weights: Array, v: Array, bias: ScoreBias | None, i: Array, j: Array) -> Array:
    """weights [B,K,G,T,S] of queries at positions i [1,T] and keys at j [1,S], v [B,S,K,H] -> [B,T,K,G,H], plus the
    values of a bias."""
    y = weighted_sum(weights, v)
    term = None if bias is None else bias.values(weights, i, j)
    return y if term is None else y + term.astype(y.dtype)


def attention_weights(
    q: Array,
    k: Array,
    mask: Mask | None = None,
    bias: ScoreBias | None = None,
    score_fn: Callable[[Array, Array], Array] | None = None,
) -> Array:
    """q [B,T,K,G,H], k [B,S,K,H] -> float32 [B,K,G,T,S]; each row sums to 1.

    Scores are those of `score_fn`, by default `attention_scores`. On a mesh that shards the length, each device scores
    its own queries against all keys.
    """
    i, j = positions_like(q), jnp.arange(k.shape[1])[None]
    return masked_weights(biased_scores(q, k, bias, i, j, score_fn), mask, i, j)


def masked_weights(scores: Array, mask: Mask | None, i: Array, j: Array) -> Array:
    """float32 scores [B,K,G,T,S] of queries at positions i [1,T] and keys at j [1,S] -> their weights where the mask
    allows them."""
    if mask is not None:
        scores = jnp.where(mask(i, j)[:, None, None], scores, MASK_VALUE)
    return jax.nn.softmax(scores, axis=-1)


def biased_scores(
    q: Array,
    k: Array,
    bias: ScoreBias | None,
    i: Array,
    j: Array,
    score_fn: Callable[[Array, Array], Array] | None = None,
) -> Array:
    """q [B,T,K,G,H] at positions i [1,T], k [B,S,K,H] at j [1,S] -> float32 scores [B,K,G,T,S] with their bias.

    Scores are those of `score_fn`, by default `attention_scores`.
    """
    scores = (score_fn or attention_scores)(q, k)
    return scores if bias is None else bias.apply(scores, i, j)


def attention_scores(q: Array, k: Array) -> Array:
    """q [B,T,K,G,H], k [B,S,K,H] -> float32 scores [B,K,G,T,S]: q k / sqrt(H)."""
    return jnp.einsum(
        "BTKGH,BSKH->BKGTS", q * q.shape[-1] ** -0.5, replicate_length(k), preferred_element_type=jnp.float32
    )


def weighted_sum(weights: Array, v: Array) -> Array:
    """weights [B,K,G,T,S], v [B,S,K,H] -> [B,T,K,G,H] in the dtype of v.

    The product has the order that XLA for CPU multiplies fast (docs/measured.md, M54).
    """
    heads = jnp.einsum("BKGTS,BSKH->BKGTH", weights.astype(v.dtype), replicate_length(v))
    return jnp.moveaxis(heads, 3, 1)
