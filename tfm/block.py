"""One block: attention and feed-forward, each with a norm, a residual connection and dropout."""

from collections.abc import Callable

from flax import struct
from jax import Array

from tfm.attention import Attention, attention_specs, multi_head_attention
from tfm.config import Config
from tfm.masks import Mask
from tfm.mlp import FeedForward, feed_forward, feed_forward_specs
from tfm.ops import Norm, dropout, norm, norm_specs, split
from tfm.positions import Bias


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
    layer: Block, config: Config, x: Array, mask: Mask | None = None, bias: Bias | None = None, key: Array | None = None
) -> Array:
    """x [B,T,D] -> [B,T,D]; a key turns dropout on."""
    attn_key, attn_drop, ffn_drop = split(key, 3)
    residual = ORDERS[config.order]
    x = residual(config, layer.attn_norm, lambda y: multi_head_attention(layer.attn, config, y, mask, bias, attn_key), x, attn_drop)
    return residual(config, layer.ffn_norm, lambda y: feed_forward(layer.ffn, config, y), x, ffn_drop)


def post_norm(config: Config, layer: Norm, sublayer: Callable[[Array], Array], x: Array, key: Array | None) -> Array:
    """norm(x + dropout(f(x))), as in the first Transformer and BERT (Vaswani et al. 2017, section 3.1)."""
    return norm(config, layer, x + dropout(sublayer(x), config.dropout, key))


def pre_norm(config: Config, layer: Norm, sublayer: Callable[[Array], Array], x: Array, key: Array | None) -> Array:
    """x + dropout(f(norm(x))), as in GPT-2 and most since (Xiong et al. 2020)."""
    return x + dropout(sublayer(norm(config, layer, x)), config.dropout, key)


ORDERS = {"post": post_norm, "pre": pre_norm}
