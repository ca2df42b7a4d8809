"""Cross-attention: a decoder's tokens attend to a memory, the states of an encoder."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import Heads, attend, attention_weights, weighted_sum
from tfm.attention.kernels.choice import attention
from tfm.attention.project import Attention, attention_specs, merge_heads, queries, swap_heads
from tfm.attention.scores import attend_scores, score_function, score_queries, score_specs
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall
from tfm.masks.by_example import padding
from tfm.masks.mask import Mask
from tfm.ops import dropout
from tfm.sharding import regroup_rows


@struct.dataclass
class Memory:
    """The states of an encoder, as the layers of a decoder read them.

    layers: `Layers` of pairs of keys and values [R,B,K,S,H]
    valid: bool [B,S], True for a token
    coverage: None, or float32 [W*B,S]: the attention that each token has got so far from each of W texts of its row, a
        mean over heads and layers
    mask: which tokens a target may see, where rows hold several texts; None: all that are valid
    """

    layers: Any
    valid: Array
    coverage: Array | None = None
    mask: Mask | None = None

    def of_layer(self, keys_values: tuple[Array, Array]) -> "CrossMemory":
        """What one layer reads."""
        keys, values = keys_values
        mask = padding(self.valid) if self.mask is None else self.mask
        return CrossMemory(swap_heads(keys), swap_heads(values), mask, self.coverage is not None)


class CrossMemory(NamedTuple):
    """What one layer reads of a memory.

    keys, values: [B,S,K,H]
    mask: the keys that a target may see
    record: return the attention weights
    """

    keys: Array
    values: Array
    mask: Mask
    record: bool


def cross_specs(options: Any, config: Config) -> Attention:
    """Projections of a layer whose mixer has these options, and what their score function trains."""
    layer = attention_specs(config, getattr(options, "qk_norm", False))
    return replace(layer, score=score_specs(config, score_of(options)))


def score_of(options: Any) -> str:
    """The score function of cross-attention in a layer whose mixer has these options."""
    return getattr(options, "score", "scaled_dot")


def cross_attention(
    call: LayerCall, x: Array, memory: CrossMemory, context: AttentionContext
) -> tuple[Array, Array | None]:
    """x [B,T,D] -> [B,T,D], and the attention weights [B,K,G,T,S] where they are recorded (Vaswani et al. 2017, section
    3.2.3).

    W texts that are neighbours may share a row of the memory: x [W*B,T,D] then gives weights [W*B,K,G,T,S].
    """
    layer, config, score = call.params, call.config, score_of(call.options)
    rate = config.attn_rate_with(call.key)
    score_fn = score_function(score, layer.score)
    by_text = score_queries(score, layer.score, queries(layer, config, x))
    q = regroup_rows(by_text, len(memory.keys))
    heads, weights = Heads(q, memory.keys, memory.values, memory.mask), None
    if memory.record or context.record:
        weights = attention_weights(q, memory.keys, memory.mask, None, score_fn)
        y = weighted_sum(dropout(weights, rate, call.key), memory.values)
        weights = jnp.moveaxis(regroup_rows(jnp.moveaxis(weights, 3, 1), len(x)), 1, 3)
    elif score_fn is not None:
        y = attend_scores(heads, score, score_fn, rate, call.key)
    elif context.keep:  # few queries at a time need no kernel, and there is no dropout
        y = attend(*heads)
    else:
        y = attention(heads, config.kernel, rate, call.key)
    return merge_heads(layer, regroup_rows(y, len(x))), weights
