"""Attention: on arrays (`attend`), and as a layer with its projections (`multi_head_attention`)."""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.config import Config
from tfm.masks import Mask
from tfm.ops import Linear, dropout, linear, linear_specs
from tfm.positions import Bias

# Scores of forbidden pairs. Finite, so that a query that may see nothing averages all values instead of giving NaN.
FORBIDDEN = -1e30


@struct.dataclass
class Attention:
    """Projections of multi-head attention; with fewer key/value heads than heads it is grouped-query attention."""

    query: Linear
    key: Linear
    value: Linear
    output: Linear


def attend(
    q: Array, k: Array, v: Array, mask: Mask | None = None, bias: Bias | None = None, rate: float = 0.0, key: Array | None = None
) -> Array:
    """q [B,T,K,G,H] or [B,T,N,H], k and v [B,S,K,H] -> the shape of q; softmax in float32.

    Scaled dot-product attention (Vaswani et al. 2017, eq. 1). N = K * G query heads share K key/value heads (Ainslie et al. 2023).
    `rate` and `key` drop attention weights. A query that may see no key gets the mean of all values.
    """
    if q.ndim == k.ndim:
        batch, length, heads, size = q.shape
        if heads % k.shape[2]:
            raise ValueError(f"q has {heads} heads, which k's {k.shape[2]} must divide; shapes are q {q.shape} and k {k.shape}")
        grouped = q.reshape(batch, length, k.shape[2], -1, size)
        return attend(grouped, k, v, mask, bias, rate, key).reshape(q.shape)
    weights = dropout(attention_weights(q, k, mask, bias), rate, key)
    return jnp.einsum("BKGTS,BSKH->BTKGH", weights.astype(v.dtype), v)


def attention_weights(q: Array, k: Array, mask: Mask | None = None, bias: Bias | None = None) -> Array:
    """q [B,T,K,G,H], k [B,S,K,H] -> float32 [B,K,G,T,S]; each row sums to 1."""
    queries, keys = q.shape[1], k.shape[1]
    scores = jnp.einsum("BTKGH,BSKH->BKGTS", q * q.shape[-1] ** -0.5, k, preferred_element_type=jnp.float32)
    if bias is not None:
        scores = scores + bias.dense(queries, keys)
    if mask is not None:
        scores = jnp.where(mask.dense(queries, keys)[:, None, None], scores, FORBIDDEN)
    return jax.nn.softmax(scores, axis=-1)


def attention_specs(config: Config) -> Attention:
    """Projections to heads and back."""
    return Attention(
        query=linear_specs(config, "D", "KGH"),
        key=linear_specs(config, "D", "KH"),
        value=linear_specs(config, "D", "KH"),
        output=linear_specs(config, "KGH", "D"),
    )


def multi_head_attention(
    layer: Attention,
    config: Config,
    x: Array,
    mask: Mask | None = None,
    bias: Bias | None = None,
    key: Array | None = None,
    memory: Array | None = None,
) -> Array:
    """x [B,T,D] -> [B,T,D]: multi-head attention over x itself, or over memory [B,S,D] (Vaswani et al. 2017, section 3.2.2)."""
    source = x if memory is None else memory
    q = linear(layer.query, "BTD,DKGH->BTKGH", x)
    k = linear(layer.key, "BSD,DKH->BSKH", source)
    v = linear(layer.value, "BSD,DKH->BSKH", source)
    y = attend(q, k, v, mask, bias, config.dropout, key)
    return linear(layer.output, "BTKGH,KGHD->BTD", y)
