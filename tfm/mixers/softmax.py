"""Softmax attention (Vaswani et al. 2017, eq. 1), under the pattern of its layer."""

from dataclasses import replace
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
from tfm.patterns import pattern_mask, pattern_of
from tfm.sharding import positions_like, replicate_length


@struct.dataclass
class KeysValues:
    """Keys, with their positions, and values: [B,S,K,H] of one layer, [R,B,S,K,H] of R layers.

    Token n is in slot n % S. Where the pattern of a layer ends `reach` tokens before the query, S need not be larger.
    """

    keys: Array
    values: Array
    reach: int | None = struct.field(pytree_node=False, default=None)

    @property
    def slots(self) -> int:
        """S."""
        return self.keys.shape[-3]


class Prepared(NamedTuple):
    """The context of a pass; the mask of this kind of layer, and how far it reaches to the left."""

    context: AttentionContext
    mask: Mask | None
    reach: int | None


def specs(options: Softmax, config: Config) -> Attention:
    """Projections to heads and back, and the parameters of the pattern."""
    pattern = pattern_of(options.pattern).specs(options.pattern, config)
    return replace(attention_specs(config, options.qk_norm), pattern=pattern)


def prepare(options: Softmax, config: Config, context: AttentionContext) -> Prepared:
    """The pattern, and what the context allows."""
    pattern = pattern_mask(options.pattern, config, context)
    if pattern is None:
        return Prepared(context, context.mask, None)
    return Prepared(context, pattern if context.mask is None else pattern & context.mask, pattern.reach[0])


def forward(call: LayerCall, x: Array, score: Any, state: KeysValues | None) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    context, mask, reach = call.prepared
    config = call.config
    rate = config.attn_rate if call.key is not None else 0.0
    k, v = keys_values(call.params, config, x)
    q, k, bias = score(queries(call.params, config, x), k, call.params)
    pattern = pattern_of(call.options.pattern)
    pattern_call = LayerCall(call.options.pattern, config, call.params.pattern, context, call.key)
    bias = pattern.bias(pattern_call, bias)
    output = MixerOutput()
    if context.keep:
        k, v = replicate_length(k), replicate_length(v)
        output = MixerOutput(state=KeysValues(k, v, reach))
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
    return merge_heads(call.params, pattern.replace(pattern_call, x, heads, score)), output


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
    slots, positions = state.slots, length + jnp.arange(q.shape[1])
    key_positions = jnp.concatenate([slot_positions(slots, length), positions])[None]
    is_written = (key_positions >= 0)[None]
    scores = jnp.concatenate([attention_scores(q, state.keys), attention_scores(q, k)], axis=-1)
    if bias is not None:
        scores = bias.apply(scores, positions[None], key_positions)
    allowed = is_written if mask is None else mask(positions[None], key_positions) & is_written
    weights = jax.nn.softmax(jnp.where(allowed[:, None, None], scores, MASK_VALUE), axis=-1)
    heads = weighted_sum(weights[..., :slots], state.values) + weighted_sum(weights[..., slots:], v)
    added = None if bias is None else bias.values(weights, positions[None], key_positions)
    return heads if added is None else heads + added.astype(heads.dtype)


def slot_positions(slots: int, length: Array | int) -> Array:
    """The position of the token in each of `slots` slots, int32 [S], after `length` tokens; below 0 if it is empty."""
    return length - 1 - (length - 1 - jnp.arange(slots)) % slots


def start(options: Softmax, output: KeysValues, slots: int) -> KeysValues:
    """Keys and values [R,B,T,K,H] in `slots` slots, or in as many as the pattern reaches."""
    length, reach = output.slots, output.reach
    slots = slots if reach is None else min(slots, max(reach, 1))

    def place(rows: Array) -> Array:
        if length > slots:
            return jnp.roll(rows[:, :, length - slots :], length % slots, axis=2)
        return jnp.pad(rows, ((0, 0), (0, 0), (0, slots - length), (0, 0), (0, 0)))

    return jax.tree.map(place, output)


def write(state: KeysValues, output: KeysValues, length: Array | int) -> KeysValues:
    """The state with keys and values [R,B,T,K,H] of T more tokens."""
    slots, count = state.slots, output.slots

    def update(old: Array, new: Array) -> Array:
        if count == 1:
            return jax.lax.dynamic_update_slice_in_dim(old, new, length % slots, axis=2)
        index = slot_positions(slots, length + count) - length
        rows = jnp.take(new, jnp.maximum(index, 0), axis=2)
        return jnp.where((index >= 0)[None, None, :, None, None], rows, old)

    return jax.tree.map(update, state, output)


MIXER = Mixer(specs, prepare, forward, start, write)
