"""Memory-compressed attention (Liu et al. 2018, section 4.2.3): a strided convolution merges groups of keys and values.

An encoder's token sees all merged keys. A decoder's token sees the merged keys of earlier groups, which end before it,
and of its own group the tokens up to itself; with groups of 3, token 7 sees

    merged 0 1 2, merged 3 4 5, and 6 and 7
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import Heads, attention_scores, weighted_sum
from tfm.attention.kernels.choice import attention
from tfm.attention.project import Attention, attention_specs, keys_values, merge_heads, queries
from tfm.catalogue.mixers.padding import valid_tokens
from tfm.catalogue.options.mixers.fewer_keys import Compressed
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Mixer, MixerOutput, Score, refuse_bias
from tfm.masks.by_example import padding
from tfm.masks.mask import MASK_VALUE
from tfm.ops import Linear, dropout, linear
from tfm.params import bias_spec, weight_spec
from tfm.sharding import replicate_length, take_positions


@struct.dataclass
class CompressedParams:
    """Projections to heads and back; convolutions of keys and of values, kernels [c,H,K,h] and biases [K,h]: a head
    reads its own channels."""

    attention: Attention
    keys: Linear
    values: Linear


@struct.dataclass
class MergedKeys:
    """Merged keys and values [B,M,K,H], and the tokens of the group that is not full, [B,c,K,H].

    What a pass returns has rows for the groups that it has read, the first of them group `first` [B]; in a decode state
    it is None.
    """

    keys: Array
    values: Array
    last_keys: Array
    last_values: Array
    first: Array | None = None


class CompressedContext(NamedTuple):
    """The context of a pass, and bool [B or 1,T], which places hold tokens; None: all."""

    context: AttentionContext
    valid: Array | None


def specs(options: Compressed, config: Config) -> CompressedParams:
    """The spec tree of one layer."""
    return CompressedParams(
        attention_specs(config), _convolution_specs(options, config), _convolution_specs(options, config)
    )


def prepare(call: LayerCall[Compressed, None, None], context: AttentionContext) -> CompressedContext:
    """Which places hold tokens. Raises ValueError for masks that ask about queries."""
    return CompressedContext(context, valid_tokens(call.options, context))


Call = LayerCall[Compressed, CompressedParams, CompressedContext]


def forward(call: Call, x: Array, score: Score, state: MergedKeys | None) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    layer, config, (context, valid) = call.params, call.config, call.prepared
    k, v = keys_values(layer.attention, config, x)
    q, k, bias = score(queries(layer.attention, config, x), k, layer.attention)
    refuse_bias(call, bias)
    q, k, v = (replicate_length(rows) for rows in (q, k, v))
    output = None
    if state is not None:
        heads, output = _extended(call, q, k, v, state)
    elif context.keep:
        heads, output = _prefilled(call, q, k, v)
    elif context.causal:
        heads = _causal(call, q, _merged(call, k, v, valid))
    else:
        groups = _merged(call, k, v, valid)
        mask = None if groups.valid is None else padding(groups.valid.any(2))
        rate = config.attn_rate_with(call.key)
        heads = attention(Heads(q, groups.keys, groups.values, mask), config.kernel, rate, call.key)
    return merge_heads(layer.attention, heads), MixerOutput(state=output)


class Groups(NamedTuple):
    """Merged keys and values [B,n,K,H]; their tokens [B,n,c,K,H]; which of them exist, bool [B or 1,n,c] or None."""

    keys: Array
    values: Array
    own_keys: Array
    own_values: Array
    valid: Array | None


def _merged(call: Call, k: Array, v: Array, valid: Array | None) -> Groups:
    """k and v [B,T,K,H] in n groups of c tokens; zeros fill the last one and stand for padding."""
    size = call.options.group_size(call.config)
    if valid is not None:
        k, v = (jnp.where(valid[:, :, None, None], rows, 0) for rows in (k, v))

    def cut(rows: Array) -> Array:
        rows = jnp.pad(rows, ((0, 0), (0, -rows.shape[1] % size), *((0, 0),) * (rows.ndim - 2)))
        return rows.reshape(rows.shape[0], -1, size, *rows.shape[2:])

    own_keys, own_values = cut(k), cut(v)
    keys, values = (
        linear(layer, "BncKH,cHKh->BnKh", rows)
        for layer, rows in ((call.params.keys, own_keys), (call.params.values, own_values))
    )
    return Groups(keys, values, own_keys, own_values, None if valid is None else cut(valid))


def _causal(call: Call, q: Array, groups: Groups) -> Array:
    """q [B,T,K,G,H] and the groups of its tokens -> [B,T,K,G,H]."""
    keys, values, own_keys, own_values, valid = groups
    length, (count, size) = q.shape[1], own_keys.shape[1:3]
    q = jnp.pad(q, ((0, 0), (0, count * size - length), (0, 0), (0, 0), (0, 0)))
    own_q = q.reshape(q.shape[0], count, size, *q.shape[2:])
    index, place = jnp.arange(count), jnp.arange(size)
    sees_group = (index[None] < index[:, None])[None, :, None, :]
    sees_own = (place[None] <= place[:, None])[None, None]
    if valid is not None:
        sees_group, sees_own = sees_group & valid.any(2)[:, None, None, :], sees_own & valid[:, :, None, :]
    scores = attention_scores(q, keys).reshape(*q.shape[:1], *q.shape[2:4], count, size, count)
    own_scores = jnp.einsum(
        "BnTKGH,BnSKH->BKGnTS", own_q * q.shape[-1] ** -0.5, own_keys, preferred_element_type=jnp.float32
    )
    weights = _softmax((scores, sees_group), (own_scores, sees_own))
    weights = dropout(weights, call.config.attn_rate, call.key).astype(q.dtype)
    heads = jnp.einsum("BKGnTm,BmKH->BnTKGH", weights[..., :count], values)
    heads = heads + jnp.einsum("BKGnTS,BnSKH->BnTKGH", weights[..., count:], own_values)
    return heads.reshape(q.shape)[:, :length]


def _prefilled(call: Call, q: Array, k: Array, v: Array) -> tuple[Array, MergedKeys]:
    """The heads [B,T,K,G,H] of prompts that are padded on the left, and what the decode state takes.

    Groups are counted from the first token of a row, so rows are shifted to the left, and back.
    """
    positions = call.prepared.context.positions
    length, ends = positions.shape[1], positions[:, -1:] + 1
    place = jnp.arange(length)[None]
    shifted = jnp.minimum(place + length - ends, length - 1)
    q, k, v = (take_positions(rows, shifted) for rows in (q, k, v))
    groups = _merged(call, k, v, place < ends)
    heads = take_positions(_causal(call, q, groups), jnp.maximum(place - length + ends, 0))
    return heads, _rows(groups, jnp.zeros_like(ends), ends)


def _extended(call: Call, q: Array, k: Array, v: Array, state: MergedKeys) -> tuple[Array, MergedKeys]:
    """The heads [B,T,K,G,H] of the next tokens, and what the decode state takes.

    Groups of these tokens begin with those of the state's last group.
    """
    positions, size = call.prepared.context.positions, state.last_keys.shape[1]
    first, left_over = positions[:, :1] // size, positions[:, :1] % size
    count = (size - 1 + q.shape[1]) // size + 1
    place = jnp.arange(count * size)[None]
    index = jnp.where(place < left_over, place, jnp.minimum(place - left_over, q.shape[1] - 1) + size)
    ends = left_over + q.shape[1]

    def after(last: Array, rows: Array) -> Array:
        return take_positions(jnp.concatenate([last, rows], axis=1), index)

    groups = _merged(call, after(state.last_keys, k), after(state.last_values, v), place < ends)
    own_keys, own_values = (rows.reshape(rows.shape[0], -1, *rows.shape[3:]) for rows in groups[2:4])
    own_place, group = (first * size + place)[:, None], positions[:, :, None] // size
    is_own = (own_place // size == group) & (own_place <= positions[:, :, None])
    earlier = jnp.arange(state.keys.shape[1])[None, None] < first[:, :, None]
    new = (first + jnp.arange(count)[None])[:, None] < group
    keys = (state.keys, groups.keys, own_keys)
    allowed = (mask[:, None, None] for mask in (earlier, new, is_own))
    weights = _softmax(*((attention_scores(q, rows), mask) for rows, mask in zip(keys, allowed, strict=True)))
    heads, start = jnp.zeros_like(q), 0
    for rows in (state.values, groups.values, own_values):
        heads = heads + weighted_sum(weights[..., start : start + rows.shape[1]], rows)
        start += rows.shape[1]
    return heads, _rows(groups, first, ends)


def _softmax(*parts: tuple[Array, Array]) -> Array:
    """Pairs of scores [...,S], and of which are allowed -> float32 weights [..., the sum of S] of them together."""
    scores = [jnp.where(_like(allowed, scores), scores, MASK_VALUE) for scores, allowed in parts]
    return jax.nn.softmax(jnp.concatenate(scores, axis=-1), axis=-1)


def _like(allowed: Array, scores: Array) -> Array:
    """[B,...] -> [B,1,1,...], with the axes of the heads of scores [B,K,G,...]."""
    return allowed if allowed.ndim == scores.ndim else allowed[:, None, None]


def _rows(groups: Groups, first: Array, ends: Array) -> MergedKeys:
    """What the decode state takes of groups, the first of them group `first` [B,1], with `ends` [B,1] tokens."""
    size = groups.own_keys.shape[2]
    index = ends // size * size + jnp.arange(size)[None]

    def last(rows: Array) -> Array:
        rows = jnp.pad(rows.reshape(rows.shape[0], -1, *rows.shape[3:]), ((0, 0), (0, size), (0, 0), (0, 0)))
        return take_positions(rows, index)

    return MergedKeys(groups.keys, groups.values, last(groups.own_keys), last(groups.own_values), first[:, 0])


def start(options: Compressed, config: Config, output: MergedKeys, slots: int) -> MergedKeys:
    """The state after a prefill, with room for the groups of `slots` tokens."""
    groups = -(-slots // output.last_keys.shape[2])

    def pad(rows: Array) -> Array:
        return jnp.pad(rows, ((0, 0), (0, 0), (0, groups - rows.shape[2]), (0, 0), (0, 0)))

    return dataclasses.replace(output, keys=pad(output.keys), values=pad(output.values), first=None)


def write(state: MergedKeys, output: MergedKeys, length: Array | int) -> MergedKeys:
    """The state with the groups that the next tokens have begun, filled or changed."""
    assert output.first is not None
    index = (jnp.arange(state.keys.shape[2])[None, None] - output.first[:, :, None])[..., None, None]

    def update(slots: Array, rows: Array) -> Array:
        inside = (index >= 0) & (index < rows.shape[2])
        new = jnp.take_along_axis(rows, jnp.clip(index, 0, rows.shape[2] - 1), axis=2)
        return jnp.where(inside, new, slots)

    keys, values = update(state.keys, output.keys), update(state.values, output.values)
    return dataclasses.replace(output, keys=keys, values=values, first=None)


def _convolution_specs(options: Compressed, config: Config) -> Linear:
    """A convolution that keeps the variance of what it reads."""
    group, size = options.group_size(config), config.sizes["H"]

    def init(key, shape, sharding):
        scale = (shape[-4] * shape[-3]) ** -0.5
        return scale * jax.random.truncated_normal(key, -2, 2, shape, jnp.float32, out_sharding=sharding)

    kernel = dataclasses.replace(weight_spec(config, "cHKh", inputs=2, c=group, h=size), init=init)
    return Linear(kernel, bias_spec(config, "Kh", h=size) if config.bias else None)


MIXER = Mixer(specs, prepare, forward, start, write)
