"""One block: attention and feed-forward, each with a norm, a residual connection and dropout."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import Attention, Dense, attention_specs, attention_sublayer
from tfm.config.model import Config
from tfm.layers.feed_forward import FeedForward, feed_forward, feed_forward_specs
from tfm.ops import Norm, dropout, norm, norm_specs, split
from tfm.sharding import gather_sequence, shard_axis, spec_of


@struct.dataclass
class Block:
    """Parameters of one block; `cross` is the attention of a decoder to what an encoder has read."""

    attn: Attention
    attn_norm: Norm
    ffn: FeedForward
    ffn_norm: Norm
    cross: Attention | None = None
    cross_norm: Any = None


def block_specs(config: Config, cross: bool = False) -> Block:
    """One block, not yet stacked."""
    more = (attention_specs(config), norm_specs(config)) if cross else ()
    return Block(attention_specs(config), norm_specs(config), feed_forward_specs(config), norm_specs(config), *more)


def transformer_block(
    layer: Block,
    config: Config,
    x: Array,
    way: Any = None,
    given: Any = None,
    key: Array | None = None,
    number: Array | int = 0,
) -> tuple[Array, Any]:
    """x [B,T,D] -> [B,T,D], and what the way of attending (default: dense, unmasked) hands back; a key turns dropout on.

    `number` counts the blocks of a stack from 0, for models whose blocks are not alike.

    A block with cross-attention takes pairs: two ways, what its own way is given beside the keys and values [B,S,K,H] of the memory; and
    it hands back a pair.
    """
    attn_key, attn_drop, ffn_drop, cross_key, cross_drop = split(key, 5)
    residual, start = ORDERS[config.order], x
    cross: Any = layer.cross
    own: Any = way or Dense()
    other: Any = None
    memory = None
    if cross is not None:
        (own, other), (given, memory) = way, given
    if config.global_every:
        own = own.at(jnp.asarray(number % config.global_every == 0))
    reads = lambda y: y if config.first_norm else jnp.where(number == 0, gather_sequence(start), y)
    attend = lambda y: attention_sublayer(layer.attn, config, reads(y), own, given, attn_key)
    x, found = residual(config, layer.attn_norm, attend, x, attn_drop)
    if cross is not None:
        recall = lambda y: attention_sublayer(cross, config, y, other, None, cross_key, memory)
        x, crossed = residual(config, layer.cross_norm, recall, x, cross_drop)
        found = found, crossed
    read = start if config.order == "parallel" else x
    return residual(config, layer.ffn_norm, lambda y: (feed_forward(layer.ffn, config, y), None), x, ffn_drop, read)[
        0
    ], found


def watched_block(
    layer: Block,
    config: Config,
    x: Array,
    way: Any = None,
    given: Any = None,
    key: Array | None = None,
    number: Array | int = 0,
) -> tuple[Array, Any]:
    """The same, and what it has read is handed back too: x, and what the way of attending hands back."""
    y, found = transformer_block(layer, config, x, way, given, key, number)
    return y, (x, found)


Sublayer = Callable[[Array], tuple[Array, Any]]


def post_norm(
    config: Config, layer: Norm, sublayer: Sublayer, x: Array, key: Array | None, read: Array | None = None
) -> tuple[Array, Any]:
    """norm(x + dropout(f(x))), as in the first Transformer and BERT (Vaswani et al. 2017, section 3.1); `read` goes to f instead of x."""
    y, found = sublayer(gather_sequence(x if read is None else read))
    return norm(config, layer, x + dropout(shard_axis(y, spec_of(x)[1]), config.dropout, key)), found


def pre_norm(
    config: Config, layer: Norm, sublayer: Sublayer, x: Array, key: Array | None, read: Array | None = None
) -> tuple[Array, Any]:
    """x + dropout(f(norm(x))), as in GPT-2 and most since (Xiong et al. 2020); `read` goes to the norm instead of x."""
    y, found = sublayer(gather_sequence(norm(config, layer, x if read is None else read)))
    return x + dropout(shard_axis(y, spec_of(x)[1]), config.dropout, key), found


# In parallel, what the feed-forward layer reads is what attention reads (Wang & Komatsuzaki 2021).
ORDERS = {"post": post_norm, "pre": pre_norm, "parallel": pre_norm}
