"""The attention-free Transformer (Zhai et al. 2021, eq. 2): a mean of values for every channel, times a gate.

    y_t = sigmoid(q_t) * sum over s of exp(k_s + w_ts) v_s / sum over s of exp(k_s + w_ts)

w_ts is the product of a vector of place t and one of place s (section 3.1); beyond the reach it is 0. Keys without
weights of places are summed by running sums, in time linear in the length.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.project import Attention, attention_specs, keys_values, merge_heads, queries
from tfm.catalogue.mixers.kernels import NOTHING, cut_chunks, positive, prepare
from tfm.catalogue.mixers.padding import SegmentedContext
from tfm.catalogue.mixers.token_states import move_slots, pad_slots, write_slots
from tfm.catalogue.options.mixers.kernels import AttentionFree
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Mixer, MixerOutput, Score, refuse_scores
from tfm.ops import lookup
from tfm.params import PyTree, weight_spec
from tfm.scopes import SUMS
from tfm.sharding import replicate_length

# Queries whose weights are computed at once, where all places have weights.
CHUNK = 128


@struct.dataclass
class AftParams:
    """Projections to heads and back, and the vectors of places of queries and of keys [P,r]; None without weights."""

    attention: Attention
    query_places: Array | None
    key_places: Array | None


@struct.dataclass
class Sums:
    """Sums over keys, float32 [...,K,H]: of weights times values and of weights, both divided by exp(top)."""

    values: Array
    mass: Array
    top: Array


@struct.dataclass
class AftKeysValues:
    """Keys and values [B,S,K,H] of one layer, [R,B,S,K,H] of R layers; token n is in slot n."""

    keys: Array
    values: Array


def specs(options: AttentionFree, config: Config) -> AftParams:
    """The spec tree of one layer."""
    places = None if options.reach == "simple" else weight_spec(config, "Pr", r=options.rank)
    return AftParams(attention_specs(config), places, places)


Call = LayerCall[AttentionFree, AftParams, SegmentedContext]


def forward(call: Call, x: Array, score: Score, state: PyTree) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]; sums in float32."""
    refuse_scores(call)
    layer, config, prepared = call.params, call.config, call.prepared
    if prepared.segments is not None:
        prepared = prepared._replace(segments=replicate_length(prepared.segments))
        call = call._replace(prepared=prepared)
    k, v = keys_values(layer.attention, config, x)
    q, k, v = (replicate_length(rows) for rows in (queries(layer.attention, config, x), k, v))
    tokens = Sums(v.astype(jnp.float32), jnp.ones_like(k, jnp.float32), k.astype(jnp.float32))
    if prepared.valid is not None:
        tokens = _where(prepared.valid, tokens)
    output: Sums | AftKeysValues
    if call.options.reach == "simple":
        sums, output = _simple(tokens, prepared, state)
    elif state is not None:
        sums, output = _cached(call, tokens, state), AftKeysValues(k, v)
    else:
        sums, output = _by_reach(call, tokens), AftKeysValues(k, v)
    means = (sums.values / positive(sums.mass)).astype(x.dtype)
    heads = jax.nn.sigmoid(q) * means[:, :, :, None]
    return merge_heads(layer.attention, heads), MixerOutput(state=output if prepared.context.keep else None)


def _simple(tokens: Sums, prepared: SegmentedContext, state: Sums | None) -> tuple[Sums, Sums]:
    """The sums of all keys that a token sees, and the next state."""
    if not prepared.context.causal and prepared.segments is None:
        top = jax.lax.stop_gradient(tokens.top.max(1, keepdims=True))
        weights = tokens.mass * jnp.exp(tokens.top - top)
        with jax.named_scope(SUMS):
            total = Sums((weights * tokens.values).sum(1, keepdims=True), weights.sum(1, keepdims=True), top)
        return total, total
    sums = _running(tokens, prepared.segments)
    if state is not None:
        sums = _join(jax.tree.map(lambda leaf: leaf[:, None], state), sums)
    if prepared.context.causal:
        return sums, jax.tree.map(lambda leaf: leaf[:, -1], sums)
    return _join(sums, _later(tokens, prepared.segments, 1)), sums


def _by_reach(call: Call, tokens: Sums) -> Sums:
    """The sums of a pass over whole texts, where places have weights."""
    options, prepared = call.options, call.prepared
    reach = options.window if options.reach == "local" else tokens.top.shape[1]
    sums = _near(call, tokens, reach)
    if options.reach == "full":
        return sums
    sums = _join(_earlier(tokens, prepared.segments, reach), sums)
    return sums if prepared.context.causal else _join(sums, _later(tokens, prepared.segments, reach))


def _near(call: Call, tokens: Sums, reach: int) -> Sums:
    """The sums of the keys at distances below `reach`, a chunk of queries at a time."""
    prepared, length = call.prepared, tokens.top.shape[1]
    u, w = (replicate_length(rows) for rows in _places(call, prepared.context.positions))
    is_local = call.options.reach == "local"
    size = min(reach if is_local else CHUNK, length)
    segments = jnp.zeros((1, length), jnp.int32) if prepared.segments is None else prepared.segments
    count = -(-length // size)
    edge = size if is_local else 0
    keys = _pad(edge, count * size - length + edge, (tokens, w, segments))
    neighbours = 2 if prepared.context.causal else 3  # the chunk itself, the one before it, and the one after it
    span = neighbours * size if is_local else count * size

    @partial(jax.checkpoint, prevent_cse=False)
    def one_chunk(_, inputs):
        index, u, own_segments = inputs
        first = index * size if is_local else 0
        chunk_keys, w, key_segments = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, first, span, 1), keys)
        place = index * size + jnp.arange(size)[:, None]
        distance = place - (first - edge + jnp.arange(span)[None])
        seen = (jnp.abs(distance) < reach) & ((distance >= 0) | (not prepared.context.causal))
        return None, _pair_sums(u, w, chunk_keys, seen[None] & (own_segments[:, :, None] == key_segments[:, None]))

    chunks = jnp.arange(count), cut_chunks(u, size), cut_chunks(segments, size)
    sums = jax.lax.scan(one_chunk, None, chunks)[1]
    return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1, *x.shape[3:])[:, :length], sums)


def _cached(call: Call, tokens: Sums, state: AftKeysValues) -> Sums:
    """The sums of the next tokens, over the keys of a state and their own."""
    context, slots, length = call.prepared.context, state.keys.shape[1], tokens.top.shape[1]
    old_places = jnp.arange(slots)[None] - context.length + context.positions[:, :1]
    new_places = context.positions
    is_old = (jnp.arange(slots) < context.length)[None] & (old_places >= 0)
    old_places = jnp.where(is_old, old_places, 0)
    old = Sums(*(rows.astype(jnp.float32) for rows in (state.values, jnp.ones_like(state.keys), state.keys)))
    u, w = _places(call, new_places)
    seen = jnp.tril(jnp.ones((length, length), bool))[None]

    def over(keys: Sums, w: Array, places: Array, seen: Array) -> Sums:
        is_near = None
        if call.options.reach == "local":
            is_near = jnp.abs(new_places[:, :, None] - places[:, None]) < call.options.window
        return _pair_sums(u, w, keys, seen, is_near)

    sums = over(_where(is_old, old), _places(call, old_places)[1], old_places, is_old[:, None])
    return _join(sums, over(tokens, w, new_places, seen))


def _places(call: Call, positions: Array) -> tuple[Array, Array]:
    """float32 [B,T,r]: the vectors of places of queries and of keys."""
    queries, keys = call.params.query_places, call.params.key_places
    assert queries is not None, "places have weights"
    assert keys is not None, "places have weights"
    return lookup(queries, positions), lookup(keys, positions)


def _pair_sums(u: Array, w: Array, keys: Sums, seen: Array, is_near: Array | None = None) -> Sums:
    """Vectors of places u [B,T,r] and w [B,S,r], keys [B,S,K,H] -> sums [B,T,K,H] of those seen, bool [B or 1,T,S].

    Pairs that are not near have the weight 0.
    """
    weights = jnp.einsum("BTr,BSr->BTS", u, w)
    weights = weights if is_near is None else jnp.where(is_near, weights, 0)
    weights = jnp.where(seen, weights, NOTHING)
    largest = jax.lax.stop_gradient(weights.max(-1, keepdims=True))
    top = jax.lax.stop_gradient(keys.top.max(1, keepdims=True))
    weights = jnp.where(seen, jnp.exp(weights - largest), 0)
    mass = keys.mass * jnp.exp(keys.top - top)
    return Sums(
        values=jnp.einsum("BTS,BSKH->BTKH", weights, mass * keys.values),
        mass=jnp.einsum("BTS,BSKH->BTKH", weights, mass),
        top=jnp.maximum(top + largest[..., None], NOTHING),
    )


def _earlier(tokens: Sums, segments: Array | None, distance: int) -> Sums:
    """For every token, the sums of the keys of its segment from the first one to that at a distance before it."""
    length = tokens.top.shape[1]
    if distance >= length:
        return _where(jnp.zeros((1, length), bool), tokens)
    sums = _running(tokens, segments)
    exists = jnp.arange(length)[None] >= distance
    if segments is not None:
        exists = exists & (jnp.roll(segments, distance, 1) == segments)
    return _where(exists, jax.tree.map(lambda x: jnp.roll(x, distance, 1), sums))


def _later(tokens: Sums, segments: Array | None, distance: int) -> Sums:
    """For every token, the sums of the keys of its segment at this distance after it or more."""
    flipped, flipped_segments = jax.tree.map(lambda x: jnp.flip(x, 1), (tokens, segments))
    return jax.tree.map(lambda x: jnp.flip(x, 1), _earlier(flipped, flipped_segments, distance))


def _running(tokens: Sums, segments: Array | None) -> Sums:
    """For every token, the sums of the keys of its segment up to its own."""
    tokens = Sums(tokens.mass * tokens.values, tokens.mass, tokens.top)
    if segments is None:
        return jax.lax.associative_scan(_join, tokens, axis=1)
    begins = (jnp.diff(segments, axis=1, prepend=segments[:, :1]) != 0)[:, :, None, None]
    begins = begins | jnp.zeros_like(tokens.top, bool).any((2, 3), keepdims=True)

    def join(left, right):
        begins, sums = right
        joined = _join(left[1], sums)
        return left[0] | begins, jax.tree.map(lambda x, y: jnp.where(begins, x, y), sums, joined)

    return jax.lax.associative_scan(join, (begins, tokens), axis=1)[1]


def _join(left: Sums, right: Sums) -> Sums:
    """The sums of the keys of both."""
    top = jax.lax.stop_gradient(jnp.maximum(left.top, right.top))
    scale, right_scale = jnp.exp(left.top - top), jnp.exp(right.top - top)
    with jax.named_scope(SUMS):
        return Sums(left.values * scale + right.values * right_scale, left.mass * scale + right.mass * right_scale, top)


def _where(exists: Array, sums: Sums) -> Sums:
    """Sums [B,T,K,H] where bool [B or 1,T], and of no keys elsewhere."""
    exists = exists[:, :, None, None]
    values, mass = (jnp.where(exists, x, 0) for x in (sums.values, sums.mass))
    return Sums(values, mass, jnp.where(exists, sums.top, NOTHING))


def _pad(left: int, right: int, rows: tuple[Sums, Array, Array]) -> tuple[Sums, Array, Array]:
    """Keys, their vectors and their segments [B,T,...], with no keys at both ends of the text."""
    padded = jax.tree.map(lambda x: jnp.pad(x, ((0, 0), (left, right), *((0, 0),) * (x.ndim - 2))), rows)
    place = jnp.arange(left + rows[0].top.shape[1] + right)[None]
    return _where((place >= left) & (place < place.shape[1] - right), padded[0]), *padded[1:]


def start(options: AttentionFree, config: Config, output: Sums | AftKeysValues, slots: int) -> Sums | AftKeysValues:
    """The state after a prefill: sums, or keys and values where places have weights."""
    return output if isinstance(output, Sums) else pad_slots(options, config, output, slots)


def write(state: PyTree, output: Sums | AftKeysValues, length: Array | int) -> Sums | AftKeysValues:
    """The state with the next tokens."""
    return output if isinstance(output, Sums) else write_slots(state, output, length)


def move(state: Sums | AftKeysValues, distance: Array | int) -> Sums | AftKeysValues:
    """The state with its tokens in slots at a distance; sums have none."""
    return state if isinstance(state, Sums) else move_slots(state, distance)


MIXER = Mixer(specs, prepare, forward, start, write, move)
