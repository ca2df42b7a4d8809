"""One block: attention and feed-forward, each with a norm, a residual connection and dropout."""

from collections.abc import Callable
from typing import Any

from flax import struct
from jax import Array

from tfm.attention import Attention, Dense, attention_specs, attention_sublayer
from tfm.config import Config
from tfm.mlp import FeedForward, feed_forward, feed_forward_specs
from tfm.ops import Norm, dropout, norm, norm_specs, split


@struct.dataclass
class Block:
    """Parameters of one block."""

    attn: Attention
    attn_norm: Norm
    ffn: FeedForward
    ffn_norm: Norm


def block_specs(config: Config) -> Block:
    """One block, not yet stacked."""
    return Block(attention_specs(config), norm_specs(config), feed_forward_specs(config), norm_specs(config))


def transformer_block(
    layer: Block, config: Config, x: Array, way: Dense | None = None, given: Any = None, key: Array | None = None
) -> tuple[Array, Any]:
    """x [B,T,D] -> [B,T,D], and what the way of attending (default: dense, unmasked) hands back; a key turns dropout on."""
    attn_key, attn_drop, ffn_drop = split(key, 3)
    residual = ORDERS[config.order]
    attend = lambda y: attention_sublayer(layer.attn, config, (y, y), way or Dense(), given, attn_key)
    x, found = residual(config, layer.attn_norm, attend, x, attn_drop)
    return residual(config, layer.ffn_norm, lambda y: (feed_forward(layer.ffn, config, y), None), x, ffn_drop)[0], found


Sublayer = Callable[[Array], tuple[Array, Any]]


def post_norm(config: Config, layer: Norm, sublayer: Sublayer, x: Array, key: Array | None) -> tuple[Array, Any]:
    """norm(x + dropout(f(x))), as in the first Transformer and BERT (Vaswani et al. 2017, section 3.1)."""
    y, found = sublayer(x)
    return norm(config, layer, x + dropout(y, config.dropout, key)), found


def pre_norm(config: Config, layer: Norm, sublayer: Sublayer, x: Array, key: Array | None) -> tuple[Array, Any]:
    """x + dropout(f(norm(x))), as in GPT-2 and most since (Xiong et al. 2020)."""
    y, found = sublayer(norm(config, layer, x))
    return x + dropout(y, config.dropout, key), found


ORDERS = {"post": post_norm, "pre": pre_norm}
