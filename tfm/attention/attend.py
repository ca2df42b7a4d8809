"""Scaled dot-product attention on arrays (Vaswani et al. 2017, eq. 1).

Tried on a CPU: other orders of axes, a backward pass of its own (docs/measured.md, M6).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.masks.mask import MASK_VALUE, Mask
from tfm.ops import dropout
from tfm.sharding import positions_like, replicate_length


class Heads(NamedTuple):
    """What attention reads.

    q: queries [B,T,K,G,H]
    k, v: keys [B,S,K,H], and values of this size or another
    mask, bias: of all pairs of queries and keys, or None
    """

    q: Array
    k: Array
    v: Array
    mask: Mask | None = None
    bias: ScoreBias | None = None


def attend(
    q: Array,
    k: Array,
    v: Array,
    mask: Mask | None = None,
    bias: ScoreBias | None = None,
    rate: float = 0.0,
    key: Array | None = None,
) -> Array:
    """q [B,T,K,G,H] or [B,T,N,H], k [B,S,K,H], v [B,S,K,h] -> [B,T,K,G,h] or [B,T,N,h]; softmax in float32.

    Scaled dot-product attention (Vaswani et al. 2017, eq. 1). N = K * G query heads share K key/value heads (Ainslie et
    al. 2023). `rate` and `key` drop attention weights. A query that may see no key gets the mean of all values. Raises
    ValueError for shapes that do not fit, a rate outside [0, 1), and a rate without a key.
    """
    check_attention(q, k, v, mask, rate, key)
    if q.ndim == k.ndim:
        grouped = q.reshape(*q.shape[:2], k.shape[2], -1, q.shape[-1])
        return attend(grouped, k, v, mask, bias, rate, key).reshape(*q.shape[:-1], v.shape[-1])
    i, j = positions_like(q), jnp.arange(k.shape[1])[None]
    scores = attention_scores(q, k)
    if bias is not None:
        scores = bias.apply(scores, i, j)
    if mask is not None:
        scores = jnp.where(mask(i, j)[:, None, None], scores, MASK_VALUE)
    weights = dropout(jax.nn.softmax(scores, axis=-1), rate, key)
    return weighted_sum(weights, v) if bias is None else apply_weights(weights, v, bias, i, j)


def check_attention(
    q: Array, k: Array, v: Array, mask: Mask | None, rate: float = 0.0, key: Array | None = None
) -> None:
    """Raises ValueError unless q [B,T,K,G,H] or [B,T,N,H], k [B,S,K,H], v [B,S,K,h] and the mask fit each other, and
    for a rate without the key that its draws need."""
    shapes = f"shapes are q {q.shape}, k {k.shape} and v {v.shape}"
    if q.ndim not in (4, 5) or k.ndim != 4 or v.ndim != 4:
        raise ValueError(f"q must be [B,T,K,G,H] or [B,T,N,H], k and v [B,S,K,H]; {shapes}")
    if v.shape[:3] != k.shape[:3]:
        raise ValueError(f"v must have the batch, the length and the heads of k; {shapes}")
    if q.shape[0] != k.shape[0]:
        raise ValueError(f"q and k must have the same batch; {shapes}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"heads of q and k must have the same size; {shapes}")
    if q.ndim == 5 and q.shape[2] != k.shape[2]:
        raise ValueError(f"q [B,T,K,G,H] and k [B,S,K,H] must have the same K heads; {shapes}")
    if q.ndim == 4 and q.shape[2] % k.shape[2]:
        raise ValueError(f"q has {q.shape[2]} heads, which k's {k.shape[2]} must divide; {shapes}")
    if mask is not None:
        mask.check(len(q), q.shape[1], k.shape[1])
    if rate and key is None:
        raise ValueError(f"rate={rate} needs a key, such as key=jax.random.key(0)")


def apply_weights(weights: Array, v: Array, bias: ScoreBias | None, i: Array, j: Array) -> Array:
    """weights [B,K,G,T,S] of queries at positions i [1,T] and keys at j [1,S], v [B,S,K,h] -> [B,T,K,G,h], plus the
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
    """weights [B,K,G,T,S], v [B,S,K,h] -> [B,T,K,G,h] in the dtype of v.

    The product has the order that XLA for CPU multiplies fast (docs/measured.md, M54).
    """
    heads = jnp.einsum("BKGTS,BSKH->BKGTH", weights.astype(v.dtype), replicate_length(v))
    return jnp.moveaxis(heads, 3, 1)
