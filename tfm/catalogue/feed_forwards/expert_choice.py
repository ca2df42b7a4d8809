"""Experts that choose tokens."""

import math

import jax
import jax.numpy as jnp
from jax import Array

from tfm.catalogue.feed_forwards import ExpertParams, expert_specs, of_slots, router_logits, with_shared
from tfm.catalogue.mixers.padding import refuse_decoders, valid_of
from tfm.catalogue.options.feed_forwards import ExpertChoice
from tfm.interfaces import AttentionContext, FeedForwardLayer, LayerCall
from tfm.sharding import replicate_length, reshape_rows, take_positions


def forward(call: LayerCall[ExpertChoice, ExpertParams, None], x: Array, context: AttentionContext) -> Array:
    """x [B,T,D] -> [B,T,D]: what the experts that have chosen a token make of it, each times the probability of the
    expert for that token (Zhou et al. 2022, section 3.2).

    Raises VariantError for causality: which tokens an expert takes depends on all of them.
    """
    refuse_decoders(call.options, context, "feed-forward layer, such as feed_forward=experts")
    options, layer, states = call.options, call.params, replicate_length(x)
    rows, length, width = states.shape
    count, size = options.experts, min(length, math.ceil(options.capacity * length / options.experts))
    probabilities = jax.nn.softmax(router_logits(layer, states))
    if (valid := valid_of(context)) is not None:
        probabilities = jnp.where(valid[:, :, None], probabilities, 0)
    gates, chosen = jax.lax.top_k(probabilities.swapaxes(1, 2), size)  # [B,X,C]
    slots = take_positions(states, reshape_rows(chosen, rows, count * size))
    outputs = of_slots(layer, call.config, reshape_rows(slots, rows, count, size, width), 1.0)
    is_at = (chosen[..., None] == jnp.arange(length)[None, None, None]).astype(outputs.dtype)  # [B,X,C,T]
    y = jnp.einsum("BXCD,BXCT->BTD", outputs * gates[..., None].astype(outputs.dtype), is_at)
    return with_shared(layer, call.config, states, y)


FEED_FORWARD = FeedForwardLayer(expert_specs, forward)
