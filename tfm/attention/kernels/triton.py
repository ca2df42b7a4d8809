"""Flash attention that drops weights, for NVIDIA GPUs: cuDNN's has no draws that a run could repeat."""

import math

import jax.numpy as jnp
from jax import Array

from tfm.attention.attend import check_attention
from tfm.attention.kernels.case import Case, why_not_fused, why_not_nvidia
from tfm.attention.kernels.dropout import WeightDropout, weight_dropout
from tfm.attention.kernels.shards import on_shards
from tfm.axes import platform
from tfm.hashing import mix
from tfm.masks.distance import MaskParts, as_window, decompose
from tfm.masks.mask import Mask

# Lengths are padded to multiples of this, which blocks divide.
MULTIPLE = 128


def triton(
    q: Array, k: Array, v: Array, mask: Mask | None = None, bias: None = None, rate: float = 0.0, key=None
) -> Array:
    """q [B,T,K,G,H], k and v [B,S,K,H] -> [B,T,K,G,H] in the dtype of v; softmax in float32.

    `rate` and `key` drop attention weights, others than elsewhere. It has a gradient, but no forward mode.
    """
    check_attention(q, k, v, mask, rate, key)
    return _triton(q, k, v, mask, bias, weight_dropout(q, rate, key))


@on_shards
def _triton(q: Array, k: Array, v: Array, mask: Mask | None, bias: None, dropout: WeightDropout | None = None) -> Array:
    """`triton` of the rows and heads of one device."""
    from tfm.attention.kernels import flash

    batch, queries, *heads, size = q.shape
    keys, parts = k.shape[1], decompose(mask)
    window = as_window(parts.pattern)
    assert window is not None
    setting = flash.Setting(
        scale=math.log2(math.e) / math.sqrt(size),
        sides=(window.left, window.right),
        keys=keys,
        is_padded=keys % MULTIPLE > 0,
        groups=heads[1],
        rate=0.0 if dropout is None else dropout.rate,
        interpret=platform() != "gpu",
    )
    seeds = None
    if dropout is not None:
        seeds = jnp.stack([mix(dropout.heads ^ word) for word in dropout.words], -1).reshape(batch, -1, 2)
    operands = flash.Operands(seeds, *_ids(parts, batch, queries, keys))
    y = flash.flash(setting, _padded(q.reshape(batch, queries, -1, size)), _padded(k), _padded(v), operands)
    return y[:, :queries].reshape(q.shape)


def _ids(parts: MaskParts, batch: int, queries: int, keys: int) -> tuple[Array | None, Array | None]:
    """Ids [B,T] of queries and [B,S] of keys: those of the texts of a row, and one that no query has for hidden
    keys."""
    if parts.segments is None and not parts.keys:
        return None, None
    of_queries, of_keys = jnp.zeros((batch, queries), jnp.int32), jnp.zeros((batch, keys), jnp.int32)
    if parts.segments is not None:
        ids = parts.segments.segment_ids
        assert ids is not None
        of_queries, of_keys = (jnp.broadcast_to(x, y.shape) for x, y in zip(ids, (of_queries, of_keys), strict=True))
    i, j = jnp.zeros((1, 1), jnp.int32), jnp.arange(keys)[None]
    for part in parts.keys:
        of_keys = jnp.where(part(i, j)[:, 0], of_keys, jnp.iinfo(jnp.int32).min)
    return _padded(of_queries), _padded(of_keys)


def _padded(x: Array) -> Array:
    """x [B,T,...] with zeros up to a multiple of the blocks."""
    return jnp.pad(x, [(0, -x.shape[1] % MULTIPLE if axis == 1 else 0) for axis in range(x.ndim)])


def why_not_triton(case: Case) -> str:
    """Why this kernel cannot handle a case; empty if it can."""
    if reason := why_not_nvidia(case, "triton"):
        return reason
    dtype, size = jnp.dtype(case.q.dtype), case.q.shape[-1]
    if dtype.itemsize != 2:
        return f"triton computes in bfloat16 and float16, and this is {dtype}"
    if size not in (16, 32, 64, 128):
        return f"for triton heads must have 16, 32, 64 or 128 numbers, and they have {size}"
    parts = case.parts
    if as_window(parts.pattern) is None or parts.rest:
        return "triton knows windows, texts and hidden keys, and this mask has other parts"
    return why_not_fused(case._replace(rate=0.0))
