"""Performer (Choromanski et al. 2021): softmax attention by positive random features, in time linear in the length.

With the rows w of a random matrix P, exp(q k) is the mean over w of phi(q) phi(k), phi(x) = exp(w x - |x|^2 / 2) (lemma
1). Sums over keys then need no scores of pairs, and a decoder's state is their sum so far: it has a constant size.
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.sharding import reshard

from tfm.attention.case import decompose
from tfm.attention.context import AttentionContext, LayerCall, MixerOutput, refuse
from tfm.attention.project import Attention, attention_specs, keys_values, merge_heads, queries
from tfm.config.mixers.kernels import Performer
from tfm.config.model import Config
from tfm.masks.distance import Window
from tfm.mixers import Mixer
from tfm.params import fixed_spec
from tfm.sharding import replicate_length

# The logarithm of a feature that no key has.
NOTHING = -1e30


@struct.dataclass
class PerformerParams:
    """Projections to heads and back, and the random matrix [m,H], which is not trained."""

    attention: Attention
    features: Array


@struct.dataclass
class FeatureSums:
    """Sums over keys so far, float32: of features times values [B,K,m,H] and of features [B,K,m].

    Features are divided by exp(top), top [B,K] the largest logarithm so far, so that none overflows.
    """

    values: Array
    mass: Array
    top: Array
    segment: Array


class Prepared(NamedTuple):
    """The context of a pass; bool [B or 1,S], which keys are tokens; and int32 [B or 1,S], the segment of each."""

    context: AttentionContext
    valid: Array
    segments: Array | None


def specs(options: Performer, config: Config) -> PerformerParams:
    """The spec tree of one layer."""
    features = fixed_spec(config, "mH", orthogonal_features, m=options.features)
    return PerformerParams(attention_specs(config), features)


def orthogonal_features(key: Array, shape: tuple[int, ...], sharding: Any) -> Array:
    """[...,m,H]: rows that are orthogonal in blocks of H, as long as Gaussian rows are (section 2.4)."""
    *stack, features, size = shape
    blocks_key, length_key = jax.random.split(key)
    blocks = jax.random.normal(blocks_key, (*stack, -(-features // size), size, size))
    rows = jnp.linalg.qr(blocks)[0].reshape(*stack, -1, size)[..., :features, :]
    lengths = jnp.linalg.norm(jax.random.normal(length_key, shape), axis=-1, keepdims=True)
    return rows * lengths if sharding is None else reshard(rows * lengths, sharding)


def prepare(options: Performer, config: Config, context: AttentionContext) -> Prepared:
    """What of the mask a sum over keys can follow. Raises ValueError for the rest, such as windows."""
    parts = decompose(context.mask)
    if parts.rest or parts.pattern != Window(None, None):
        refuse(options, "reads texts with padding and segments, and no other mask", "try mixer=softmax")
    new = jnp.arange(context.positions.shape[1])[None] + context.length
    valid = jnp.ones_like(new, bool)
    for mask in parts.keys:
        valid = valid & mask(jnp.zeros((1, 1), jnp.int32), new)[:, 0]
    segments = None if parts.segments is None else parts.segments.segment_ids
    return Prepared(context, valid, segments[1] if segments else None)


def forward(call: LayerCall, x: Array, score: Any, state: FeatureSums | None) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    layer, config, prepared = call.params, call.config, call.prepared
    k, v = keys_values(layer.attention, config, x)
    q, k, bias = score(queries(layer.attention, config, x), k, layer.attention)
    if bias is not None:
        refuse(call.options, "has no scores of pairs of tokens to bias", "try position=learned or position=rotary")
    features = jax.lax.stop_gradient(layer.features).astype(jnp.float32)
    q, k, v = (replicate_length(rows) for rows in (q, k, v))
    log_q, log_k = log_features(q, features), log_features(k, features)
    log_k = jnp.where(prepared.valid[:, :, None, None], log_k, NOTHING)
    if prepared.context.causal:
        heads, state = causal_sums(log_q, log_k, v, prepared.segments, state, call.options.chunk)
    elif prepared.segments is None:
        heads = all_sums(log_q, log_k, v)
    else:
        heads = segment_sums(log_q, log_k, v, prepared.segments, call.options.chunk)
    output = MixerOutput(state=state if prepared.context.keep else None)
    return merge_heads(layer.attention, heads.astype(x.dtype)), output


def log_features(x: Array, features: Array) -> Array:
    """x [B,T,...,H], features [m,H] -> float32 [B,T,...,m]: w x - |x|^2 / 2 of x divided by the fourth root of H."""
    x = x.astype(jnp.float32) * x.shape[-1] ** -0.25
    return jnp.einsum("...H,mH->...m", x, features) - 0.5 * jnp.square(x).sum(-1, keepdims=True)


def all_sums(log_q: Array, log_k: Array, v: Array) -> Array:
    """log_q [B,T,K,G,m], log_k [B,S,K,m], v [B,S,K,H] -> float32 [B,T,K,G,H]: every query sees all keys."""
    phi_q = jnp.exp(log_q - _largest(log_q, (-1,)))
    phi_k = jnp.exp(log_k - _largest(log_k, (1, 3)))
    values = jnp.einsum("BSKm,BSKH->BKmH", phi_k, v.astype(jnp.float32))
    sums = jnp.einsum("BTKGm,BKmH->BTKGH", phi_q, values)
    return sums / _positive(jnp.einsum("BTKGm,BKm->BTKG", phi_q, phi_k.sum(1)))[..., None]


def causal_sums(
    log_q: Array, log_k: Array, v: Array, segments: Array | None, state: FeatureSums | None, chunk: int
) -> tuple[Array, FeatureSums]:
    """log_q [B,T,K,G,m], log_k [B,T,K,m], v [B,T,K,H], segments [B or 1,T] -> float32 [B,T,K,G,H], and the next state.

    Every query sees itself and the keys before it in its segment.
    """
    state = _no_keys(log_k, v) if state is None else state
    sums, total, state = _scan((log_q, log_k, v, _per_row(segments, log_k)), state, chunk)
    return sums / _positive(total)[..., None], state


def segment_sums(log_q: Array, log_k: Array, v: Array, segments: Array, chunk: int) -> Array:
    """The arguments of `causal_sums` -> float32 [B,T,K,G,H], where every query sees all keys of its segment.

    The keys up to the query are those of a pass from the left; the keys after it those of a pass from the right.
    """
    state = replace(_no_keys(log_k, v), top=_largest(log_k, (1, 3))[:, 0, :, 0])
    rows = (log_q, log_k, v, _per_row(segments, log_k))
    sums, total, _ = _scan(rows, state, chunk)
    later = _scan(tuple(jnp.flip(row, 1) for row in rows), state, chunk, sees_itself=False)
    later_sums, later_total = (jnp.flip(row, 1) for row in later[:2])
    return (sums + later_sums) / _positive(total + later_total)[..., None]


def _scan(
    rows: tuple[Array, ...], state: FeatureSums, chunk: int, sees_itself: bool = True
) -> tuple[Array, Array, FeatureSums]:
    """log_q, log_k, v and segments [B,T] -> sums [B,T,K,G,H] over keys, their total weight [B,T,K,G], and the next
    state.

    Keys in the chunk of a query are summed by their products with it, earlier keys by their sum.
    """
    log_q, log_k, v, segments = rows
    length = log_q.shape[1]
    size = min(chunk, length)
    chunks = (
        _cut(log_q, size),
        _cut(log_k, size, constant_values=NOTHING),
        _cut(v.astype(jnp.float32), size),
        _cut(_extend(segments, -length % size), size),
    )
    state, results = jax.lax.scan(partial(_one_chunk, sees_itself), state, chunks)
    sums, total = (jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1, *x.shape[3:])[:, :length] for x in results)
    return sums, total, state


def _one_chunk(
    sees_itself: bool, state: FeatureSums, rows: tuple[Array, ...]
) -> tuple[FeatureSums, tuple[Array, Array]]:
    """The state after a chunk of C tokens; sums [B,C,K,G,H] and total weight [B,C,K,G] of its queries."""
    log_q, log_k, v, segments = rows
    top = jnp.maximum(state.top, _largest(log_k, (1, 3))[:, 0, :, 0])
    kept = jnp.exp(state.top - top)
    values, mass = state.values * kept[..., None, None], state.mass * kept[..., None]
    phi_q = jnp.exp(log_q - _largest(log_q, (-1,)))
    phi_k = jnp.exp(log_k - top[:, None, :, None])
    same = segments[:, :, None] == segments[:, None, :]
    seen = same & jnp.tril(jnp.ones(same.shape[1:], bool), 0 if sees_itself else -1)[None]
    products = jnp.where(seen[:, None, None], jnp.einsum("BTKGm,BSKm->BKGTS", phi_q, phi_k), 0)
    earlier = jnp.where((segments == state.segment[:, None])[:, :, None, None, None], phi_q, 0)
    sums = jnp.einsum("BKGTS,BSKH->BTKGH", products, v) + jnp.einsum("BTKGm,BKmH->BTKGH", earlier, values)
    total = products.sum(-1).transpose(0, 3, 1, 2) + jnp.einsum("BTKGm,BKm->BTKG", earlier, mass)
    last = segments[:, -1]
    phi_k = jnp.where((segments == last[:, None])[:, :, None, None], phi_k, 0)
    goes_on = (state.segment == last)[:, None, None]
    state = FeatureSums(
        values=jnp.where(goes_on[..., None], values, 0) + jnp.einsum("BSKm,BSKH->BKmH", phi_k, v),
        mass=jnp.where(goes_on, mass, 0) + phi_k.sum(1),
        top=top,
        segment=last,
    )
    return state, (sums, total)


def start(options: Performer, output: FeatureSums, slots: int) -> FeatureSums:
    """The state after a prefill: it has the same size for any number of slots."""
    return output


def _no_keys(log_k: Array, v: Array) -> FeatureSums:
    """Sums before the first key; made of arrays of the pass, so that they are sharded like these."""
    mass = jnp.zeros_like(log_k[:, 0])
    return FeatureSums(
        values=jnp.einsum("BKm,BKH->BKmH", mass, jnp.zeros_like(v[:, 0], jnp.float32)),
        mass=mass,
        top=mass[..., 0] + NOTHING,
        segment=jnp.zeros_like(mass, jnp.int32).sum((1, 2)),
    )


def _per_row(segments: Array | None, log_k: Array) -> Array:
    """Segments [B or 1,T], or None for one segment -> int32 [B,T]."""
    zeros = jnp.zeros_like(log_k, jnp.int32).sum((2, 3))
    return zeros if segments is None else zeros + replicate_length(segments)


def _extend(segments: Array, count: int) -> Array:
    """segments [B,T] -> [B,T+count]: the last one goes on. `jnp.pad` could not do that where the batch is sharded."""
    length = segments.shape[1]
    is_token = (jnp.arange(length + count) < length)[None]
    return jnp.where(is_token, jnp.pad(segments, ((0, 0), (0, count))), segments[:, -1:])


def _cut(x: Array, size: int, **padding: Any) -> Array:
    """[B,T,...] -> [n,B,size,...]; the last chunk is padded."""
    x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % size), *((0, 0),) * (x.ndim - 2)), **padding)
    return jnp.moveaxis(x.reshape(x.shape[0], -1, size, *x.shape[2:]), 1, 0)


def _largest(x: Array, axes: tuple[int, ...]) -> Array:
    """The largest elements along axes, without a gradient: they cancel in every ratio."""
    return jax.lax.stop_gradient(x.max(axes, keepdims=True))


def _positive(x: Array) -> Array:
    """x, at least the smallest normal number: a query that sees no key gets zeros."""
    return jnp.maximum(x, jnp.finfo(jnp.float32).tiny)


MIXER = Mixer(specs, prepare, forward, start)
