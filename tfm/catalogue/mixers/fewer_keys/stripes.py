"""Stripes of a grid of patches (CSWin: Dong et al. 2022, sections 3.2 and 3.3): half of the heads attend within stripes
of rows, half within stripes of columns, and a depth-wise convolution of the values tells where patches stand.

The convolution reads the whole grid; the openly published code has one for every stripe.
"""

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import Heads
from tfm.attention.kernels.choice import attention
from tfm.attention.project import Attention, attention_specs, keys_values, merge_heads, queries
from tfm.catalogue.grid import check_whole, depthwise
from tfm.catalogue.options.mixers.fewer_keys import Stripes
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Mixer, MixerOutput, Score, refuse_scores
from tfm.ops import broadcast_param
from tfm.params import bias_spec, weight_spec
from tfm.sharding import regroup_rows, replicate_length, reshape_rows, shard_axis, unshard_fsdp


@struct.dataclass
class StripedAttention:
    """Projections to heads and back, and the weights [h,w,K,H] and the bias [K,H] of the convolution of values."""

    attention: Attention
    places: Array
    places_bias: Array


def specs(options: Stripes, config: Config) -> StripedAttention:
    """The spec tree of one layer."""
    places = weight_spec(config, "hwKH", inputs=2, h=options.kernel, w=options.kernel)
    return StripedAttention(attention_specs(config), places, bias_spec(config, "KH"))


Call = LayerCall[Stripes, StripedAttention, None]


def forward(call: Call, x: Array, score: Score, state: None) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    refuse_scores(call)
    layer, config, x = call.params, call.config, replicate_length(x)
    k, v = (_whole_heads(rows) for rows in keys_values(layer.attention, config, x))
    q, half = _whole_heads(queries(layer.attention, config, x)), k.shape[2] // 2
    parts = [
        _striped(call, q[:, :, heads], k[:, :, heads], v[:, :, heads], axis)
        for axis, heads in enumerate((slice(None, half), slice(half, None)))
    ]
    y = jnp.concatenate(parts, axis=2) + _places(call, v)[:, :, :, None]
    return merge_heads(layer.attention, y), MixerOutput()


def _whole_heads(rows: Array) -> Array:
    """Queries, keys or values [B,T,K,...] with all heads on every device."""
    return shard_axis(shard_axis(rows, None, 2), None, 3)


def _striped(call: Call, q: Array, k: Array, v: Array, axis: int) -> Array:
    """q [B,T,K,G,H], k and v [B,T,K,H] of a grid -> [B,T,K,G,H], within stripes of rows (`axis` 0) or of columns."""
    grid, options, batch = call.config.grid or (1, 1), call.options, len(q)
    rows, columns = grid if axis == 0 else grid[::-1]
    stripes = batch * (rows // options.side(call.config, axis))
    q, k, v = (regroup_rows(x if axis == 0 else _turned(x, *grid), stripes) for x in (q, k, v))
    heads = Heads(q, k, v)
    y = attention(heads, call.config.kernel, call.config.attn_rate_with(call.key), call.key)
    y = regroup_rows(y, batch)
    return y if axis == 0 else _turned(y, rows, columns)


def _turned(x: Array, rows: int, columns: int) -> Array:
    """x [B,T,...] of a grid, row by row -> the same, column by column."""
    places = reshape_rows(x, len(x), rows, columns, *x.shape[2:]).swapaxes(1, 2)
    return reshape_rows(places, *x.shape)


def _places(call: Call, v: Array) -> Array:
    """v [B,T,K,H] -> what the convolution adds to each head, in its dtype."""
    layer, flat = call.params, reshape_rows(v, *v.shape[:2], v.shape[2] * v.shape[3])
    weights = unshard_fsdp(layer.places)
    kernel = shard_axis(weights, None, 2).reshape(*weights.shape[:2], -1)
    y = reshape_rows(depthwise(kernel, flat, call.config.grid), *v.shape)
    return y + broadcast_param(shard_axis(layer.places_bias, None, 0), y)


MIXER = Mixer(specs, check_whole, forward)
