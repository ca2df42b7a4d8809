"""Softmax attention (Vaswani et al. 2017, eq. 1), under the pattern of its layer."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import Heads, apply_weights, attention_weights, biased_scores
from tfm.attention.bias import BiasAfterMemory, ScoreBias
from tfm.attention.kernels.choice import attention
from tfm.attention.project import Attention, attention_specs, keys_values, merge_heads, queries, swap_heads
from tfm.attention.scores import attend_scores, score_function, score_queries, score_specs
from tfm.catalogue.patterns.window_partition import WindowPartition
from tfm.config.mixers import Softmax
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Mixer, MixerOutput, Score, refuse
from tfm.masks.mask import MASK_VALUE, Mask
from tfm.ops import dropout, linear_specs
from tfm.patterns import Keys
from tfm.sharding import positions_like, replicate_length
from tfm.tables.patterns import PATTERNS, pattern_mask


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


class Prepared(NamedTuple):
    """The context of a pass; the mask of this kind of layer, how far it reaches to the left, and the windows of a grid
    that are rows of their own, to which mask and scores then belong."""

    context: AttentionContext
    mask: Mask | None
    reach: int | None
    windows: WindowPartition | None = None


def specs(options: Softmax, config: Config) -> Attention:
    """Projections to heads and back, of halves of the states where they are split; and what the score function and the
    pattern train."""
    score, pattern = score_specs(config, options.score), PATTERNS[options.pattern.name].specs(options.pattern, config)
    layer = replace(attention_specs(config, options.qk_norm, options.qkv_bias), score=score, pattern=pattern)
    if not options.key_bias:
        layer = replace(layer, key=replace(layer.key, bias=None))
    if not options.output_bias:
        layer = replace(layer, output=replace(layer.output, bias=None))
    if not options.split_states:
        return layer
    half, bias = config.width // 2, config.bias and options.qkv_bias
    return replace(
        layer,
        query=linear_specs(config, "d", "KGH", bias, d=half),
        key=linear_specs(config, "d", "KH", bias, d=half),
        value=linear_specs(config, "d", "KH", bias, branch=True, d=half),
    )


def prepare(call: LayerCall[Softmax, None, None], context: AttentionContext) -> Prepared:
    """The pattern, and what the context allows. Raises ValueError where windows of a grid cannot obey it."""
    windows = PATTERNS[call.options.pattern.name].windows(call.options.pattern, call.config)
    if windows is not None:
        return Prepared(context, _window_mask(call.options, context, windows), None, windows)
    pattern = pattern_mask(call.options.pattern, call.config, context)
    if pattern is None:
        return Prepared(context, context.mask, None)
    return Prepared(context, pattern if context.mask is None else pattern & context.mask, pattern.reach[0])


def _window_mask(options: Softmax, context: AttentionContext, windows: WindowPartition) -> Mask | None:
    """The mask in windows."""
    length = context.positions.shape[1]
    if context.causal or context.mask is not None:
        refuse(options.pattern, "is for encoders of images, all of which are read in full", "leave out the mask")
    if length != windows.rows * windows.columns:
        grid = f"a grid of {windows.rows} x {windows.columns} patches"
        refuse(options.pattern, f"reads {grid}, and there are {length} tokens", "read images of input.size")
    return windows.mask(context.positions)


def forward(
    call: LayerCall[Softmax, Attention, Prepared], x: Array, score: Score, state: Any
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]. The state is `KeysValues` of a decoder, states [B,M,D] of the segment before, or None."""
    (context, mask, reach, windows), config, layer = call.prepared, call.config, call.params
    rate = config.attn_rate_with(call.key)
    past = state if context.segment_memory else None
    x = x if windows is None else windows.split(x)
    q, k, v = project(call, x, past)
    plain_q, plain_k = q, k
    q, k, bias = score(q, k, layer)
    score_fn = score_function(call.options.score, layer.score)
    if score_fn is not None and (q is not plain_q or k is not plain_k):
        refuse(call.options, f"with score={call.options.score} multiplies no queries and keys", "try position=learned")
    pattern = PATTERNS[call.options.pattern.name]
    pattern_call = LayerCall(call.options.pattern, config, layer.pattern, context, call.key)
    bias = pattern.bias(pattern_call, plain_q, bias)
    if bias is not None and past is not None:
        bias = BiasAfterMemory(bias, past.shape[1])
    k, v, mask, bias = pattern.extend(pattern_call, x, Keys(k, v, mask, bias), partial(project_keys, call))
    output = MixerOutput()
    if context.keep:
        k, v = replicate_length(k), replicate_length(v)
        output = MixerOutput(state=KeysValues(swap_heads(k), swap_heads(v), reach))
    if state is not None and past is None:
        heads = cached_attend(q, (k, v), state, context.length, mask, bias, score_fn)
    elif context.record:
        weights = attention_weights(q, k, mask, bias, score_fn)
        j = jnp.arange(k.shape[1])[None]
        heads = apply_weights(dropout(weights, rate, call.key), v, bias, positions_like(q), j)
        output = MixerOutput(output.state, weights if windows is None else windows.dense(weights))
    elif score_fn is not None:
        heads = attend_scores(Heads(q, k, v, mask, bias), call.options.score, score_fn, rate, call.key)
    else:
        kernel = None if context.keep else config.kernel  # a prompt is read once
        heads = attention(Heads(q, k, v, mask, bias), kernel, rate, call.key)
    y = merge_heads(layer, pattern.replace(pattern_call, x, heads, score))
    return y if windows is None else windows.merge(y), output


def project(
    call: LayerCall[Softmax, Attention, Prepared], x: Array, past: Array | None = None
) -> tuple[Array, Array, Array]:
    """x [B,T,D] -> queries [B,T,K,G,H], keys and values [B,T,K,H]; with states [B,M,D] of the past, those of these
    stand before them, and no gradient reaches the states (Dai et al. 2019, section 3.2)."""
    compared, _ = _split_states(call, x)
    q = score_queries(call.options.score, call.params.score, queries(call.params, call.config, compared))
    k, v = project_keys(call, x)
    if past is not None:
        earlier = project_keys(call, jax.lax.stop_gradient(past))
        rows = zip(earlier, map(replicate_length, (k, v)), strict=True)
        k, v = (jnp.concatenate([old, new], axis=1) for old, new in rows)
    return q, k, v


def project_keys(call: LayerCall[Softmax, Attention, Prepared], x: Array) -> tuple[Array, Array]:
    """x [B,S,D] -> keys and values [B,S,K,H]."""
    return keys_values(call.params, call.config, *_split_states(call, x))


def _split_states(call: LayerCall[Softmax, Attention, Prepared], x: Array) -> tuple[Array, Array]:
    """What of x [B,T,D] makes queries and keys, and what makes values."""
    compared, valued = jnp.split(x, 2, axis=-1) if call.options.split_states else (x, x)
    return compared, valued


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


MIXER = Mixer(specs, prepare, forward, start, write)
