"""Attention: on arrays (`attend`), and as a layer with its projections (`multi_head_attention`).

A way of attending (`Dense`, `Recorded`, the cached one of `tfm.cache`) is a small object that every layer calls with its queries, keys
and values. It may be given something for each layer, and hand something back for each: that is how weights are looked at and how keys
are kept, without a layer knowing.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.config import Config
from tfm.masks import Mask
from tfm.ops import Linear, dropout, linear, linear_specs
from tfm.positions import Bias, rotate

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
    return mix(dropout(attention_weights(q, k, mask, bias), rate, key), v)


def attention_weights(q: Array, k: Array, mask: Mask | None = None, bias: Bias | None = None) -> Array:
    """q [B,T,K,G,H], k [B,S,K,H] -> float32 [B,K,G,T,S]; each row sums to 1."""
    queries, keys = q.shape[1], k.shape[1]
    scores = compare(q, k)
    if bias is not None:
        scores = scores + bias.dense(queries, keys)
    if mask is not None:
        scores = jnp.where(mask.dense(queries, keys)[:, None, None], scores, FORBIDDEN)
    return jax.nn.softmax(scores, axis=-1)


def compare(q: Array, k: Array) -> Array:
    """q [B,T,K,G,H], k [B,S,K,H] -> float32 scores [B,K,G,T,S]: q k / sqrt(H)."""
    return jnp.einsum("BTKGH,BSKH->BKGTS", q * q.shape[-1] ** -0.5, k, preferred_element_type=jnp.float32)


def mix(weights: Array, v: Array) -> Array:
    """weights [B,K,G,T,S], v [B,S,K,H] -> [B,T,K,G,H] in the dtype of v: sums of values."""
    return jnp.einsum("BKGTS,BSKH->BTKGH", weights.astype(v.dtype), v)


@struct.dataclass
class Dense:
    """The plain way: every query is compared with every key. `turns` are the angles of rotary positions (`tfm.rotary`), or None."""

    mask: Mask | None = None
    bias: Bias | None = None
    turns: Array | None = None

    def __call__(self, q: Array, k: Array, v: Array, given: Any = None, rate: float = 0.0, key: Array | None = None) -> tuple[Array, Any]:
        """q [B,T,K,G,H], k and v [B,T,K,H] -> [B,T,K,G,H], and what is handed back; a key drops attention weights at `rate`."""
        return attend(rotate(q, self.turns), rotate(k, self.turns), v, self.mask, self.bias, rate, key), None


@struct.dataclass
class Recorded(Dense):
    """The same, and the attention weights [B,K,G,T,S] of each layer are handed back: `x, weights = tfm.stack(blocks, config, x, way)`."""

    def __call__(self, q, k, v, given=None, rate=0.0, key=None):  # noqa: D102
        weights = attention_weights(rotate(q, self.turns), rotate(k, self.turns), self.mask, self.bias)
        return mix(dropout(weights, rate, key), v), weights


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
    return attention_sublayer(layer, config, (x, x if memory is None else memory), Dense(mask, bias), key=key)[0]


def attention_sublayer(
    layer: Attention, config: Config, x: tuple[Array, Array], way: Dense, given: Any = None, key: Array | None = None
) -> tuple[Array, Any]:
    """x: where queries come from [B,T,D], and keys and values [B,S,D] -> [B,T,D], and what the way of attending hands back."""
    queries, source = x
    q = linear(layer.query, "BTD,DKGH->BTKGH", queries)
    k = linear(layer.key, "BSD,DKH->BSKH", source)
    v = linear(layer.value, "BSD,DKH->BSKH", source)
    y, found = way(q, k, v, given, config.dropout, key)
    return linear(layer.output, "BTKGH,KGHD->BTD", y), found
