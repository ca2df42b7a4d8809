"""Sparse Sinkhorn attention (Tay et al. 2020): blocks of tokens attend to themselves and to a mixture of other blocks.

A linear map of the sum of a block scores all blocks. Scores become a matrix whose rows and columns sum to 1, nearly a
permutation (section 3.1); it mixes the blocks of keys and values, and a block reads its row beside its own tokens.

A block of a decoder is scored by the sum of the text up to its first token, and mixes earlier blocks only (section
3.3). Columns are divided by the sum of their rows so far, so that no block depends on a later one. A decode state has
the keys and values of all tokens, and the sum of the text up to each; blocks are counted from the first token of a row.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import attention_scores, weighted_sum
from tfm.attention.project import Attention, attention_specs, keys_values, merge_heads, queries
from tfm.catalogue.mixers.clustered import ClusterContext
from tfm.catalogue.mixers.clustered import prepare as prepare_rows
from tfm.catalogue.mixers.token_states import move_slots, pad_slots, write_slots
from tfm.catalogue.options.mixers.clustered import Sinkhorn
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Mixer, MixerOutput, Score, refuse
from tfm.low_rank import kernel_of
from tfm.masks.mask import MASK_VALUE
from tfm.ops import Linear, dropout, linear, split
from tfm.params import bias_spec, weight_spec
from tfm.scopes import SUMS
from tfm.sharding import named_sharding, replicate_length, spec_of, take_positions

# Added to scores of blocks before their logarithm.
EPS = 1e-6


@struct.dataclass
class SinkhornParams:
    """Projections to heads and back, and the map from a block to scores of all blocks [D,K,b]."""

    attention: Attention
    blocks: Linear


def specs(options: Sinkhorn, config: Config) -> SinkhornParams:
    """The spec tree of one layer."""
    count = -(-config.sizes["P"] // options.block)
    blocks = Linear(weight_spec(config, "DKb", b=count), bias_spec(config, "Kb", b=count))
    return SinkhornParams(attention_specs(config), blocks)


def prepare(call: LayerCall[Sinkhorn, None, None], context: AttentionContext) -> ClusterContext:
    """The tokens of the pass. Raises ValueError for masks of other kinds than padding."""
    prepared = prepare_rows(call, context)
    if prepared.rows.segments is not None:
        refuse(call.options, "cuts the text of a row into blocks", "put every text into a row of its own")
    return prepared


@struct.dataclass
class SummedKeys:
    """Keys and values [B,S,K,H], and the sums of the text up to each token, float32 [B,S,D]."""

    keys: Array
    values: Array
    sums: Array


Call = LayerCall[Sinkhorn, SinkhornParams, ClusterContext]


def forward(call: Call, x: Array, score: Score, state: SummedKeys | None) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    layer, config, options = call.params, call.config, call.options
    context, rows = call.prepared
    k, v = keys_values(layer.attention, config, x)
    q, k, bias = score(queries(layer.attention, config, x), k, layer.attention)
    if bias is not None:
        refuse(options, "does not score all pairs of tokens", "try position=learned or position=rotary")
    q = replicate_length(q)
    k, v, text = (jnp.where(jnp.expand_dims(rows.valid, range(2, y.ndim)), replicate_length(y), 0) for y in (k, v, x))
    if not context.keep:
        return merge_heads(layer.attention, _read(call, (q, k, v, text, rows.valid))), MixerOutput()
    sums = jnp.cumsum(text.astype(jnp.float32), axis=1)
    if state is None:
        heads = _prefilled(call, (q, k, v, text))
        new = SummedKeys(k, v, sums)
    else:
        new = SummedKeys(k, v, sums + jax.lax.dynamic_slice_in_dim(state.sums, context.length - 1, 1, axis=1))
        heads = attend_to_cached_blocks(call, q, new, state)
    return merge_heads(layer.attention, heads), MixerOutput(new)


def _read(call: Call, rows: tuple[Array, ...]) -> Array:
    """q [B,T,K,G,H], k and v [B,T,K,H] and the text [B,T,D], zeros for padding, and which are tokens, bool [B or 1,T]
    -> [B,T,K,G,H]."""
    noise_key, drop_key = split(call.key, 2)
    length, causal = rows[0].shape[1], call.prepared.context.causal
    q, k, v, text, valid = (cut(y, min(call.options.block, length)) for y in rows)
    blocks = SinkhornBlocks(q, k, v, valid, causal)
    scores = _scores(call, sums_of_blocks(text, causal))
    mixture = mixtures(scores, blocks, call.options, noise_key)
    return attend_to_blocks(blocks, mixture, call.config.attn_rate, drop_key)[:, :length]


def _prefilled(call: Call, rows: tuple[Array, ...]) -> Array:
    """Heads [B,T,K,G,H] of prompts that are padded on the left. Blocks are counted from the first token of a row, so
    rows are shifted to the left, and back."""
    positions = call.prepared.context.positions
    length, ends = positions.shape[1], positions[:, -1:] + 1
    place = jnp.arange(length)[None]
    shifted = jnp.minimum(place + length - ends, length - 1)
    heads = _read(call, (*(take_positions(y, shifted) for y in rows), place < ends))
    return take_positions(heads, jnp.maximum(place - length + ends, 0))


def attend_to_cached_blocks(call: Call, q: Array, new: SummedKeys, state: SummedKeys) -> Array:
    """q [B,T,K,G,H] of T tokens, what they add to the state, and the state before them -> [B,T,K,G,H], as of a pass
    over all tokens.

    A query's score for a mixture of keys is the mixture of its scores, so that no keys are moved.
    """
    context, size, slots = call.prepared.context, call.options.block, state.keys.shape[1]
    positions, first = context.positions, context.positions[:, :1]
    count = min(-(-slots // size), kernel_of(call.params.blocks.kernel).shape[-1])
    place = jnp.arange(count * size)[None]
    is_token = place <= positions[:, -1:]
    column = jnp.where(is_token, place + jnp.where(place < first, context.length - first, slots - first), 0)
    is_own = jax.nn.one_hot(positions // size, count)
    sums = take_positions(jnp.concatenate([state.sums, new.sums], axis=1), column[:, ::size]).astype(q.dtype)
    blocks = SinkhornBlocks(q, state.keys, state.values, cut(is_token, size), causal=True)
    mixture = jnp.einsum("BTn,BKnm->BKTm", is_own, mixtures(_scores(call, sums), blocks, call.options))

    scores = jnp.concatenate([attention_scores(q, keys) for keys in (state.keys, new.keys)], axis=-1)
    scores = jnp.where(is_token[:, None, None, None], _take(scores, column), 0)
    scores = scores.reshape(*scores.shape[:-1], count, size)
    own = jnp.einsum("BTn,BKGTnb->BKGTb", is_own, scores)
    mixed = jnp.einsum("BKTn,BKGTnb->BKGTb", mixture, scores)
    is_earlier = (jnp.arange(size)[None, None] <= positions[:, :, None] % size)[:, None, None]
    has_mixture = (positions >= size)[:, None, None, :, None]
    mixed, own = jnp.where(has_mixture, mixed, MASK_VALUE), jnp.where(is_earlier, own, MASK_VALUE)
    weights = jax.nn.softmax(jnp.concatenate([mixed, own], axis=-1), axis=-1)

    of_mixtures = jnp.einsum("BKTn,BKGTb->BKGTnb", mixture, weights[..., :size])
    weights = of_mixtures + jnp.einsum("BTn,BKGTb->BKGTnb", is_own, weights[..., size:])
    old_places = jnp.arange(slots)[None] - context.length + first
    old_places = jnp.where(jnp.arange(slots)[None] < context.length, old_places, -1)
    places = jnp.concatenate([old_places, positions], axis=1)
    weights = _take(weights.reshape(*weights.shape[:-2], -1), jnp.maximum(places, 0))
    weights = jnp.where((places >= 0)[:, None, None, None], weights, 0)
    return weighted_sum(weights[..., :slots], state.values) + weighted_sum(weights[..., slots:], new.values)


def _scores(call: Call, sums: Array) -> Array:
    """Sums [B,n,D] -> float32 [B,K,n,n]: scores of blocks for blocks."""
    scores = linear(call.params.blocks, "BnD,DKb->BnKb", sums)[..., : sums.shape[1]]
    return jnp.moveaxis(scores, 2, 1).astype(jnp.float32)


def _take(x: Array, index: Array) -> Array:
    """x [B,K,G,T,S] at the index [B,P] -> [B,K,G,T,P]."""
    return jnp.take_along_axis(x, index[:, None, None, None], axis=-1)


class SinkhornBlocks(NamedTuple):
    """n blocks of b tokens: q [B,n,b,K,G,H], k and v [B,n,b,K,H], which of them are tokens [B or 1,n,b], and whether no
    token sees a later one."""

    q: Array
    k: Array
    v: Array
    valid: Array
    causal: bool

    @property
    def allowed(self) -> Array:
        """Whether a block may mix another one: bool [B or 1,n,n]."""
        is_text = self.valid.any(2)
        allowed = is_text[:, :, None] & is_text[:, None]
        return allowed & jnp.tril(jnp.ones(allowed.shape[1:], bool), -1)[None] if self.causal else allowed


def cut(x: Array, size: int) -> Array:
    """[B,T,...] -> [B,n,size,...], with zeros behind the end."""
    x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % size), *((0, 0),) * (x.ndim - 2)))
    return x.reshape(x.shape[0], -1, size, *x.shape[2:])


@jax.named_scope(SUMS)
def sums_of_blocks(text: Array, causal: bool) -> Array:
    """text [B,n,b,D] -> [B,n,D]: the sum of each block; with causality, that of the text up to its first token."""
    rows = text.astype(jnp.float32)
    sums = rows.sum(2)
    if causal:
        sums = jnp.pad(jnp.cumsum(sums, axis=1)[:, :-1], ((0, 0), (1, 0), (0, 0))) + rows[:, :, 0]
    return sums.astype(text.dtype)


def mixtures(scores: Array, blocks: SinkhornBlocks, options: Sinkhorn, key: Array | None = None) -> Array:
    """float32 scores [B,K,n,n] of blocks for blocks -> [B,K,n,n]: how much of the second a block mixes.

    Sinkhorn's normalization of exp(log(relu(scores)) / temperature) (section 3.1), its padding and, with causality,
    its upper triangle left out. A key adds Gumbel noise.
    """
    allowed = blocks.allowed[:, None]
    logits = jnp.log(jax.nn.relu(scores) + EPS)
    if key is not None:
        sharding = named_sharding(logits, logits, *spec_of(logits))
        uniform = jax.random.uniform(key, logits.shape, jnp.float32, 1e-6, 1 - 1e-6, out_sharding=sharding)
        logits = logits - jnp.log(-jnp.log(uniform))
    logits = jnp.where(allowed, logits / options.temperature, MASK_VALUE)
    for _ in range(options.iterations):
        logits = jnp.where(allowed, logits - jax.nn.logsumexp(logits, axis=3, keepdims=True), MASK_VALUE)
        columns = jax.lax.cumlogsumexp(logits, axis=2) if blocks.causal else jax.nn.logsumexp(logits, 2, keepdims=True)
        logits = jnp.where(allowed, logits - columns, MASK_VALUE)
    return jnp.exp(logits)


def attend_to_blocks(blocks: SinkhornBlocks, mixture: Array, rate: float = 0.0, key: Array | None = None) -> Array:
    """Blocks and mixtures [B,K,n,n] -> [B,n*b,K,G,H]: attention of a block to its mixture and to itself; softmax in
    float32. `rate` and `key` drop attention weights."""
    k, v = (
        jnp.concatenate([jnp.einsum("BKnm,BmbKH->BnbKH", mixture.astype(rows.dtype), rows), rows], axis=2)
        for rows in (blocks.k, blocks.v)
    )
    q, size = blocks.q * blocks.q.shape[-1] ** -0.5, blocks.q.shape[2]
    scores = jnp.einsum("BnqKGH,BnsKH->BKGnqs", q, k, preferred_element_type=jnp.float32)
    mixed = (blocks.allowed[..., None] & blocks.valid[:, None]).any(2)
    own = blocks.valid[:, :, None] & jnp.tril(jnp.ones((size, size), bool), 0 if blocks.causal else size)[None, None]
    seen = jnp.concatenate([jnp.broadcast_to(mixed[:, :, None], own.shape), own], axis=-1)[:, None, None]
    weights = dropout(jax.nn.softmax(jnp.where(seen, scores, MASK_VALUE), axis=-1), rate, key)
    heads = jnp.einsum("BKGnqs,BnsKH->BnqKGH", weights.astype(v.dtype), v)
    return heads.reshape(heads.shape[0], -1, *heads.shape[3:])


MIXER = Mixer(specs, prepare, forward, pad_slots, write_slots, move_slots)
