"""Softmax attention (Vaswani et al. 2017, eq. 1), under the pattern of its layer."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import apply_weights, attend, attention_scores, attention_weights, weighted_sum
from tfm.attention.bias import ScoreBias
from tfm.attention.context import AttentionContext, LayerCall, MixerOutput
from tfm.attention.dispatch import attend_with
from tfm.attention.project import Attention, attention_specs, keys_values, merge_heads, queries
from tfm.config.mixers import Softmax
from tfm.config.model import Config
from tfm.masks.mask import MASK_VALUE, Mask
from tfm.mixers import Mixer
from tfm.ops import dropout
from tfm.patterns import pattern_mask
from tfm.sharding import positions_like, replicate_length


@struct.dataclass
class KeysValues:
    """Keys, with their positions, and values: [B,S,K,H] of one layer, [R,B,S,K,H] of R layers."""

    keys: Array
    values: Array


class Prepared(NamedTuple):
    """The context of a pass, and the mask of this kind of layer."""

    context: AttentionContext
    mask: Mask | None


def specs(options: Softmax, config: Config) -> Attention:
    """Projections to heads and back."""
    return attention_specs(config, options.qk_norm)


def prepare(options: Softmax, config: Config, context: AttentionContext) -> Prepared:
    """The pattern, and what the context allows."""
    pattern = pattern_mask(options.pattern, context.causal)
    if pattern is None or context.mask is None:
        return Prepared(context, pattern if context.mask is None else context.mask)
    return Prepared(context, pattern & context.mask)


def forward(call: LayerCall, x: Array, score: Any, state: KeysValues | None) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    context, mask = call.prepared
    config = call.config
    rate = config.attn_rate if call.key is not None else 0.0
    k, v = keys_values(call.params, config, x)
    q, k, bias = score(queries(call.params, config, x), k, call.params)
    output = MixerOutput()
    if context.keep:
        k, v = replicate_length(k), replicate_length(v)
        output = MixerOutput(state=KeysValues(k, v))
    if state is not None:
        heads = cached_attend(q, (k, v), state, context.length, mask, bias)
    elif context.record:
        weights = attention_weights(q, k, mask, bias)
        heads = apply_weights(dropout(weights, rate, call.key), v, bias, positions_like(q))
        output = MixerOutput(output.state, weights)
    elif context.keep:  # a prompt is read once: no kernel needs to be compiled for it
        heads = attend(q, k, v, mask, bias, rate, call.key)
    else:
        heads = attend_with(config, q, k, v, mask, bias, call.key)
    return merge_heads(call.params, heads), output


def cached_attend(
    q: Array,
    new: tuple[Array, Array],
    state: KeysValues,
    length: Array | int,
    mask: Mask | None,
    bias: ScoreBias | None,
) -> Array:
    """q [B,T,K,G,H], new keys and values [B,T,K,H], and a state with `length` tokens -> [B,T,K,G,H].

    Scores are concatenated, never keys: the state is read where it lies.
    """
    k, v = new
    slots, positions = state.keys.shape[1], length + jnp.arange(q.shape[1])
    key_positions = jnp.concatenate([jnp.arange(slots), positions])[None]
    is_written = jnp.concatenate([jnp.arange(slots) < length, jnp.ones(len(positions), bool)])[None, None]
    scores = jnp.concatenate([attention_scores(q, state.keys), attention_scores(q, k)], axis=-1)
    if bias is not None:
        scores = bias.apply(scores, positions[None], key_positions)
    allowed = is_written if mask is None else mask(positions[None], key_positions) & is_written
    weights = jax.nn.softmax(jnp.where(allowed[:, None, None], scores, MASK_VALUE), axis=-1)
    heads = weighted_sum(weights[..., :slots], state.values) + weighted_sum(weights[..., slots:], v)
    added = None if bias is None else bias.values(weights, positions[None], key_positions)
    return heads if added is None else heads + added.astype(heads.dtype)


def start(options: Softmax, output: KeysValues, slots: int) -> KeysValues:
    """Keys and values [R,B,T,K,H] in `slots` slots."""

    def pad(rows: Array) -> Array:
        return jnp.pad(rows, ((0, 0), (0, 0), (0, slots - rows.shape[2]), (0, 0), (0, 0)))

    return jax.tree.map(pad, output)


def write(state: KeysValues, output: KeysValues, length: Array | int) -> KeysValues:
    """The state with keys and values [R,B,T,K,H] of T more tokens."""

    def update(slots: Array, rows: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(slots, rows, length, axis=2)

    return jax.tree.map(update, state, output)


MIXER = Mixer(specs, prepare, forward, start, write)
