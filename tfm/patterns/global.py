"""A sliding window and global tokens (Longformer: Beltagy et al. 2020, section 3.1)."""  # noqa: N999

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import attend
from tfm.attention.case import decompose
from tfm.attention.context import LayerCall, refuse
from tfm.attention.project import keys_values, queries
from tfm.config.model import Config
from tfm.config.patterns import Global
from tfm.masks.distance import causal, window
from tfm.masks.mask import Mask
from tfm.masks.place import global_tokens
from tfm.ops import Linear, linear_specs
from tfm.patterns import Pattern
from tfm.sharding import replicate_length, shard_axis, spec_of


@struct.dataclass
class GlobalProjections:
    """Projections for the queries of global tokens: of these queries, and of the keys and values that they see."""

    query: Linear
    key: Linear
    value: Linear
    query_norm: None = None
    key_norm: None = None


def mask(options: Global, config: Config, is_causal: bool) -> Mask:
    """The window, and both directions between the first tokens and the others."""
    half = options.window // 2
    local = window(options.window - 1, 0) if is_causal else window(half, half)
    if not options.tokens:
        return local
    pattern = local | global_tokens(options.tokens)
    return causal() & pattern if is_causal else pattern


def specs(options: Global, config: Config) -> GlobalProjections | None:
    """The projections, where there are any."""
    if not options.projections:
        return None
    return GlobalProjections(
        query=linear_specs(config, "D", "KGH"),
        key=linear_specs(config, "D", "KH"),
        value=linear_specs(config, "D", "KH", branch=True),
    )


def replace(call: LayerCall, x: Array, heads: Array, score: Callable[..., Any]) -> Array:
    """The heads [B,T,K,G,H] with those of the first tokens by their own projections.

    Raises ValueError for a decoder, several texts in a row, and a bias of positions that is computed for all queries at
    once.
    """
    layer, config, context = call.params, call.config, call.prepared
    if layer is None or not call.options.tokens:
        return heads
    if context.causal or decompose(context.mask).segments is not None:
        remedy = "try mixer.pattern.projections=false"
        refuse(call.options, "with projections reads texts from both sides, each in a row of its own", remedy)
    count, length = min(call.options.tokens, x.shape[1]), x.shape[1]
    k, v = keys_values(layer, config, x)
    first = queries(layer, config, replicate_length(x)[:, :count])
    padded = jnp.pad(first, ((0, 0), (0, length - count), *((0, 0),) * 3))  # positions are those of all tokens
    q, k, bias = score(shard_axis(padded, spec_of(heads)[1]), k, layer)
    if bias is not None and not bias.blockwise:
        refuse(call.options, "with projections cannot use these positions", "try position=learned or position=rotary")
    rate = config.attn_rate_with(call.key)
    first = attend(replicate_length(q)[:, :count], k, v, context.mask, bias, rate, call.key)
    y = jnp.concatenate([first, replicate_length(heads)[:, count:]], axis=1)
    return shard_axis(y, spec_of(heads)[1])


PATTERN = Pattern(mask, specs=specs, replace=replace)
