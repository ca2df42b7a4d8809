"""Cross-attention: a decoder's tokens attend to a memory, the states of an encoder."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import Array

from tfm.attention.attend import Heads, attend, attention_weights, weighted_sum
from tfm.attention.kernels.choice import attention
from tfm.attention.project import Attention, attention_specs, merge_heads, queries, swap_heads
from tfm.attention.scores import attend_scores, score_function, score_queries, score_specs
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall
from tfm.masks.by_example import padding
from tfm.ops import dropout
from tfm.sharding import regroup_rows


def cross_specs(options: Any, config: Config) -> Attention:
    """Projections of a layer whose mixer has these options, and what their score function trains."""
    layer = attention_specs(config, getattr(options, "qk_norm", False))
    return replace(layer, score=score_specs(config, score_of(options)))


def score_of(options: Any) -> str:
    """The score function of cross-attention in a layer whose mixer has these options."""
    return getattr(options, "score", "scaled_dot")


def cross_attention(
    call: LayerCall[Any, Attention, tuple[Array, Array]], x: Array, context: AttentionContext
) -> tuple[Array, Array | None]:
    """x [B,T,D] -> [B,T,D], and the attention weights [B,K,G,T,S] where they are recorded (Vaswani et al. 2017, section
    3.2.3).

    `call.prepared` are the keys and values [B,K,S,H] of the memory in this layer. W texts that are neighbours may share
    a row of it: x [W*B,T,D] then gives weights [W*B,K,G,T,S].
    """
    layer, config, memory, score = call.params, call.config, context.memory, score_of(call.options)
    assert memory is not None, "blocks with cross-attention read a memory"
    rate, (k, v) = config.attn_rate_with(call.key), map(swap_heads, call.prepared)
    mask = padding(memory.valid) if memory.mask is None else memory.mask
    score_fn = score_function(score, layer.score)
    q = regroup_rows(score_queries(score, layer.score, queries(layer, config, x)), len(k))
    heads, weights = Heads(q, k, v, mask), None
    if memory.coverage is not None or context.record:
        weights = attention_weights(q, k, mask, None, score_fn)
        y = weighted_sum(dropout(weights, rate, call.key), v)
        weights = jnp.moveaxis(regroup_rows(jnp.moveaxis(weights, 3, 1), len(x)), 1, 3)
    elif score_fn is not None:
        y = attend_scores(heads, score, score_fn, rate, call.key)
    elif context.keep:  # few queries at a time need no kernel, and there is no dropout
        y = attend(*heads)
    else:
        y = attention(heads, config.kernel, rate, call.key)
    return merge_heads(layer, regroup_rows(y, len(x))), weights
