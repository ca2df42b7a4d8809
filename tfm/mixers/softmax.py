"""Softmax attention (Vaswani et al. 2017, eq. 1), under the pattern of its layer.

How a layer computes it is chosen once a pass, in `prepare`: `plain`, `recorded` or `kept`. What a layer has kept reads
itself: see `KeysValues.read`.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import Heads, apply_weights, attention_weights, biased_scores
from tfm.attention.bias import ScoreBias
from tfm.attention.kernels.choice import attention
from tfm.attention.project import (
    Attention,
    SoftmaxCall,
    SoftmaxPass,
    attention_specs,
    merge_heads,
    project,
    swap_heads,
    with_positions,
)
from tfm.attention.scores import additive_scores, attend_scores, score_function, score_specs
from tfm.config.mixers import Softmax
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Mixer, MixerOutput, Score
from tfm.masks.mask import MASK_VALUE, Mask
from tfm.ops import dropout, linear_specs
from tfm.options.choices import Options
from tfm.patterns import in_texts
from tfm.sharding import positions_like, replicate_length
from tfm.tables.patterns import PATTERNS


class State(Protocol):
    """What a layer has kept of the tokens before these."""

    def read(self, call: SoftmaxCall, x: Array, score: Score) -> tuple[Array, MixerOutput]:
        """x [B,T,D] -> [B,T,D], and what the layer keeps now."""


def specs(options: Softmax, config: Config) -> Attention:
    """Projections to heads and back, of halves of the states where they are split; and what the score function and the
    pattern train."""
    score, pattern = score_specs(config, options.score), PATTERNS[options.pattern.name].specs(options.pattern, config)
    bias = (config.bias and options.qkv_bias) or options.own_qkv_bias
    layer = replace(attention_specs(config, options.qk_norm, bias), score=score, pattern=pattern)
    if not options.key_bias:
        layer = replace(layer, key=replace(layer.key, bias=None))
    if not options.output_bias:
        layer = replace(layer, output=replace(layer.output, bias=None))
    if not options.split_states:
        return layer
    half = config.width // 2
    return replace(
        layer,
        query=linear_specs(config, "d", "KGH", bias, d=half),
        key=linear_specs(config, "d", "KH", bias, d=half),
        value=linear_specs(config, "d", "KH", bias, branch=True, d=half),
    )


def prepare(call: LayerCall[Softmax, None, None], context: AttentionContext) -> SoftmaxPass:
    """The pattern, what the context allows, and the path. Raises VariantError where the pattern cannot obey it."""
    options, pattern = call.options, PATTERNS[call.options.pattern.name]
    mask = pattern_mask(options.pattern, call.config, context)
    reach = None if mask is None else mask.reach[0]
    if context.mask is not None:
        mask = context.mask if mask is None else mask & context.mask
    path = kept if context.keep else recorded if context.record else plain
    if path is plain and options.score == "additive":
        path = scored
    return SoftmaxPass(context, mask, reach, path, pattern.bias, pattern.forward)


def pattern_mask(options: Options, config: Config, context: AttentionContext) -> Mask | None:
    """Which keys a query may see by its pattern and by causality; None: all."""
    pattern = PATTERNS[options.name]
    if pattern.prepare is not None:
        return pattern.prepare(LayerCall(options, config), context)
    mask = pattern.mask(options, config, context.causal)
    return None if mask is None else in_texts(mask, context)


def forward(call: SoftmaxCall, x: Array, score: Score, state: State | None) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    variant = call.prepared.forward if state is None else state.read
    if variant is not None:
        return variant(call, x, score)
    y, output = call.prepared.path(call, with_positions(call, *project(call, x), score))
    return merge_heads(call.params, y), output


def plain(call: SoftmaxCall, heads: Heads) -> tuple[Array, MixerOutput]:
    """Attention by the kernel that fits."""
    config, key = call.config, call.key
    return attention(heads, config.kernel, config.attn_rate_with(key), key), MixerOutput()


def scored(call: SoftmaxCall, heads: Heads) -> tuple[Array, MixerOutput]:
    """Attention by scores that no kernel computes."""
    rate, score_fn = call.config.attn_rate_with(call.key), partial(additive_scores, vector=call.params.score)
    return attend_scores(heads, call.options.score, score_fn, rate, call.key), MixerOutput()


def recorded(call: SoftmaxCall, heads: Heads) -> tuple[Array, MixerOutput]:
    """Attention that returns its weights."""
    q, k, v, mask, bias = heads
    weights = attention_weights(q, k, mask, bias, score_function(call.options.score, call.params.score))
    j = jnp.arange(k.shape[1])[None]
    dropped = dropout(weights, call.config.attn_rate_with(call.key), call.key)
    return apply_weights(dropped, v, bias, positions_like(q), j), MixerOutput(weights=weights)


def kept(call: SoftmaxCall, heads: Heads) -> tuple[Array, MixerOutput]:
    """Attention of a prompt, which is read once; its keys and values are kept."""
    heads, state = _keep(call, heads)
    if call.options.score == "additive":
        return scored(call, heads)[0], MixerOutput(state=state)
    rate = call.config.attn_rate_with(call.key)
    return attention(heads, None, rate, call.key), MixerOutput(state=state)


def _keep(call: SoftmaxCall, heads: Heads) -> tuple[Heads, "KeysValues"]:
    """Heads on devices that have all keys and values, and the state that these are."""
    k, v = replicate_length(heads.k), replicate_length(heads.v)
    return heads._replace(k=k, v=v), KeysValues(swap_heads(k), swap_heads(v), call.prepared.reach)


@struct.dataclass
class KeysValues:
    """Keys, with their positions, and values: [B,K,S,H] of one layer, [R,B,K,S,H] of R layers.

    The slots of a head lie together: products read them where they are (docs/measured.md, M48). Token n is in slot
    n % S. Where the pattern of a layer ends `reach` tokens before the query, S need not be larger.
    """

    keys: Array
    values: Array
    reach: int | None = struct.field(pytree_node=False, default=None)

    @property
    def slots(self) -> int:
        """S."""
        return self.keys.shape[-2]

    def in_order(self, length: Array | int) -> tuple[Array, Array, Array, Array]:
        """Keys and values [B,S,K,H] of one layer after `length` tokens, the oldest first; their positions, which are
        consecutive, and whether the state holds a token there, both [1,S]."""
        slots = jnp.arange(self.slots)[None]
        keys, values = swap_heads(self.keys), swap_heads(self.values)
        if self.reach is None:
            return keys, values, slots, slots < length
        keys, values = (jnp.roll(rows, -(length % self.slots), axis=1) for rows in (keys, values))
        positions = slots + length - self.slots
        return keys, values, positions, positions >= 0

    def read(self, call: SoftmaxCall, x: Array, score: Score) -> tuple[Array, MixerOutput]:
        """x [B,T,D] after the tokens of this state -> [B,T,D]; and the keys and values of x, which `write` adds."""
        (q, k, v, mask, bias), state = _keep(call, with_positions(call, *project(call, x), score))
        score_fn = score_function(call.options.score, call.params.score)
        y = cached_attend(q, (k, v), self, call.prepared.context.length, mask, bias, score_fn)
        return merge_heads(call.params, y), MixerOutput(state=state)


def cached_attend(
    q: Array,
    new: tuple[Array, Array],
    state: KeysValues,
    length: Array | int,
    mask: Mask | None,
    bias: ScoreBias | None,
    score_fn: Callable[[Array, Array], Array] | None = None,
) -> Array:
    """q [B,T,K,G,H], new keys and values [B,T,K,H], and a state with `length` tokens -> [B,T,K,G,H].

    Scores are those of `score_fn`, by default products. They are concatenated, never keys: the state is read where it
    lies.
    """
    k, v = new
    state_k, state_v, slots, is_filled = state.in_order(length)
    i = length + jnp.arange(q.shape[1])[None]
    j = jnp.concatenate([slots, i], axis=1)
    is_written = jnp.concatenate([is_filled, jnp.ones_like(i, bool)], axis=1)[None]
    state_bias = None if bias is None else bias.for_keys(state_k)
    scores = biased_scores(q, state_k, state_bias, i, slots, score_fn), biased_scores(q, k, bias, i, i, score_fn)
    allowed = is_written if mask is None else mask(i, j) & is_written
    masked = jnp.where(allowed[:, None, None], jnp.concatenate(scores, axis=-1), MASK_VALUE)
    old, recent = jnp.split(jax.nn.softmax(masked, axis=-1), [slots.size], axis=-1)
    return apply_weights(old, state_v, state_bias, i, slots) + apply_weights(recent, v, bias, i, i)


def slot_positions(slots: int, length: Array | int) -> Array:
    """The position of the token in each of `slots` slots, int32 [S], after `length` tokens; below 0 if it is empty."""
    return length - 1 - (length - 1 - jnp.arange(slots)) % slots


def start(options: Softmax, config: Config, output: KeysValues, slots: int) -> KeysValues:
    """Keys and values [R,B,K,T,H] in `slots` slots, or in as many as the pattern reaches."""
    length, reach = output.slots, output.reach
    slots = slots if reach is None else min(slots, max(reach, 1))

    def place(rows: Array) -> Array:
        if length > slots:
            return jnp.roll(rows[..., length - slots :, :], length % slots, axis=3)
        return jnp.pad(rows, (*((0, 0),) * 3, (0, slots - length), (0, 0)))

    return jax.tree.map(place, output)


def write(state: KeysValues, output: KeysValues, length: Array | int) -> KeysValues:
    """The state with keys and values [R,B,K,T,H] of T more tokens."""
    slots, count = state.slots, output.slots

    def update(old: Array, new: Array) -> Array:
        if count == 1 or state.reach is None:
            return jax.lax.dynamic_update_slice_in_dim(old, new, length % slots, axis=3)
        index = slot_positions(slots, length + count) - length
        rows = jnp.take(new, jnp.maximum(index, 0), axis=3)
        return jnp.where((index >= 0)[None, None, None, :, None], rows, old)

    return jax.tree.map(update, state, output)


def move(state: KeysValues, distance: Array | int) -> KeysValues:
    """The state [R,B,K,S,H] with the token of slot n in slot n + distance, modulo S."""
    return jax.tree.map(lambda rows: jnp.roll(rows, distance, axis=3), state)


MIXER = Mixer(specs, prepare, forward, start, write, move)
