"""Mixers whose scores are products of features: phi(q) phi(k). Sums over keys then need no scores of pairs.

With features of queries and keys, sum over s of phi(q) phi(k_s) v_s is phi(q) times a matrix, the sum of phi(k_s) v_s
(Katharopoulos et al. 2020, eq. 5). A decoder's state is that sum so far: it has a constant size. Features are kept as
logarithms, so that none overflows.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.project import Attention, keys_values, merge_heads, queries
from tfm.catalogue.mixers.padding import SegmentedContext, valid_tokens_and_segments
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, MixerOutput, Score, refuse_bias
from tfm.options.choices import Options
from tfm.sharding import replicate_length

# The logarithm of a feature that no key has.
NOTHING = -1e30
# The least share of a feature of a key in its largest one. So no query has a weight of zero for all keys, where it
# would divide by zero.
_LEAST = 1e-9


@struct.dataclass
class FeatureSums:
    """Sums over keys so far, float32: of features times values [B,K,m,H] and of features [B,K,m].

    Features are divided by exp(top), top [B,K] the largest logarithm so far, so that none overflows.
    """

    values: Array
    mass: Array
    top: Array
    segment: Array


def prepare(call: LayerCall[Options, None, None], context: AttentionContext) -> SegmentedContext:
    """What of the mask a sum over keys can follow. Raises ValueError for the rest, such as windows."""
    return SegmentedContext(context, *valid_tokens_and_segments(call.options, context))


def attend_by_features(
    call: LayerCall,
    layer: Attention,
    x: Array,
    score: Score,
    state: FeatureSums | None,
    log_features: Callable[[Array], Array],
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]; log_features: [B,T,...,H] -> the logarithms of features, float32 [B,T,...,m]."""
    config, prepared = call.config, call.prepared
    k, v = keys_values(layer, config, x)
    q, k, bias = score(queries(layer, config, x), k, layer)
    refuse_bias(call, bias)
    q, k, v = (replicate_length(rows) for rows in (q, k, v))
    log_q, log_k = log_features(q), log_features(k)
    if prepared.valid is not None:
        log_k = jnp.where(prepared.valid[:, :, None, None], log_k, NOTHING)
    if prepared.context.causal:
        heads, state = causal_sums(log_q, log_k, v, prepared.segments, state, call.options.chunk)
    elif prepared.segments is None:
        heads = all_sums(log_q, log_k, v)
    else:
        heads = segment_sums(log_q, log_k, v, prepared.segments, call.options.chunk)
    output = MixerOutput(state=state if prepared.context.keep else None)
    return merge_heads(layer, heads.astype(x.dtype)), output


def all_sums(log_q: Array, log_k: Array, v: Array) -> Array:
    """log_q [B,T,K,G,m], log_k [B,S,K,m], v [B,S,K,H] -> float32 [B,T,K,G,H]: every query sees all keys."""
    phi_q, (phi_k, sizes) = jnp.exp(log_q - _largest(log_q, (-1,))), _key_features(log_k)
    phi_k *= jnp.exp(sizes - sizes.max(1, keepdims=True))[..., None]
    values = jnp.einsum("BSKm,BSKH->BKmH", phi_k, v.astype(jnp.float32))
    sums = jnp.einsum("BTKGm,BKmH->BTKGH", phi_q, values)
    return sums / positive(jnp.einsum("BTKGm,BKm->BTKG", phi_q, phi_k.sum(1)))[..., None]


def causal_sums(
    log_q: Array, log_k: Array, v: Array, segments: Array | None, state: FeatureSums | None, chunk: int
) -> tuple[Array, FeatureSums]:
    """log_q [B,T,K,G,m], log_k [B,T,K,m], v [B,T,K,H], segments [B or 1,T] -> float32 [B,T,K,G,H], and the next state.

    Every query sees itself and the keys before it in its segment.
    """
    state = _no_keys(log_k, v) if state is None else state
    sums, total, _, state = _scan((log_q, log_k, v, segments_per_row(segments, log_k)), state, chunk)
    return sums / positive(total)[..., None], state


def segment_sums(log_q: Array, log_k: Array, v: Array, segments: Array, chunk: int) -> Array:
    """The arguments of `causal_sums` -> float32 [B,T,K,G,H], where every query sees all keys of its segment.

    The keys up to the query are those of a pass from the left; the keys after it those of a pass from the right.
    """
    state, rows = _no_keys(log_k, v), (log_q, log_k, v, segments_per_row(segments, log_k))
    sums, total, top, _ = _scan(rows, state, chunk)
    later = _scan(tuple(jnp.flip(row, 1) for row in rows), state, chunk, sees_itself=False)
    later_sums, later_total, later_top = (jnp.flip(row, 1) for row in later[:3])
    scale, later_scale = (jnp.exp(x - jnp.maximum(top, later_top))[..., None] for x in (top, later_top))
    total = positive(total * scale + later_total * later_scale)
    return (sums * scale[..., None] + later_sums * later_scale[..., None]) / total[..., None]


def _scan(
    rows: tuple[Array, ...], state: FeatureSums, chunk: int, sees_itself: bool = True
) -> tuple[Array, Array, Array, FeatureSums]:
    """log_q, log_k, v and segments [B,T] -> sums [B,T,K,G,H] over keys and their total weight [B,T,K,G], divided by
    exp(top); top [B,T,K]; and the next state.

    Keys in the chunk of a query are summed by their products with it, earlier keys by their sum.
    """
    log_q, log_k, v, segments = rows
    length = log_q.shape[1]
    size = min(chunk, length)
    chunks = (
        cut_chunks(log_q, size),
        cut_chunks(log_k, size, constant_values=NOTHING),
        cut_chunks(v.astype(jnp.float32), size),
        cut_chunks(extend_segments(segments, -length % size), size),
    )
    state, results = jax.lax.scan(partial(_one_chunk, sees_itself), state, chunks)
    sums, total, top = (jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1, *x.shape[3:])[:, :length] for x in results)
    return sums, total, top, state


def _one_chunk(
    sees_itself: bool, state: FeatureSums, rows: tuple[Array, ...]
) -> tuple[FeatureSums, tuple[Array, Array, Array]]:
    """The state after a chunk of C tokens; of its queries sums [B,C,K,G,H], total weight [B,C,K,G] and top [B,C,K].

    A query divides by the largest feature of the keys that it sees, so that a later key cannot make them all zero.
    """
    log_q, log_k, v, segments = rows
    phi_q, (phi_k, sizes) = jnp.exp(log_q - _largest(log_q, (-1,))), _key_features(log_k)
    same = segments[:, :, None] == segments[:, None, :]
    seen = (same & jnp.tril(jnp.ones(same.shape[1:], bool), 0 if sees_itself else -1)[None])[:, None]
    goes_on = segments == state.segment[:, None]
    sizes = sizes.swapaxes(1, 2)
    top = jnp.where(seen, sizes[:, :, None], NOTHING).max(-1).swapaxes(1, 2)
    top = jnp.maximum(top, jnp.where(goes_on[..., None], state.top[:, None], NOTHING))
    weights = jnp.where(seen, jnp.exp(jnp.minimum(sizes[:, :, None] - top.swapaxes(1, 2)[..., None], 0)), 0)
    products = jnp.einsum("BTKGm,BSKm->BKGTS", phi_q, phi_k) * weights[:, :, None]
    kept = jnp.where(goes_on[..., None], jnp.exp(jnp.minimum(state.top[:, None] - top, 0)), 0)
    earlier = phi_q * kept[..., None, None]
    sums = jnp.einsum("BKGTS,BSKH->BTKGH", products, v) + jnp.einsum("BTKGm,BKmH->BTKGH", earlier, state.values)
    total = products.sum(-1).transpose(0, 3, 1, 2) + jnp.einsum("BTKGm,BKm->BTKG", earlier, state.mass)
    return _next_state(state, phi_k, sizes, v, segments), (sums, total, top)


def _next_state(state: FeatureSums, phi_k: Array, sizes: Array, v: Array, segments: Array) -> FeatureSums:
    """The state after keys with features phi_k [B,C,K,m] of sizes [B,K,C], and values v [B,C,K,H]."""
    last = segments[:, -1]
    sizes = jnp.where((segments == last[:, None])[:, None], sizes, NOTHING)
    before = jnp.where((state.segment == last)[:, None], state.top, NOTHING)
    top = jnp.maximum(before, sizes.max(-1))
    phi_k *= jnp.where(sizes > NOTHING, jnp.exp(sizes - top[..., None]), 0).swapaxes(1, 2)[..., None]
    kept = jnp.where(before > NOTHING, jnp.exp(before - top), 0)[..., None]
    return FeatureSums(
        values=state.values * kept[..., None] + jnp.einsum("BSKm,BSKH->BKmH", phi_k, v),
        mass=state.mass * kept + phi_k.sum(1),
        top=top,
        segment=last,
    )


def start(options: Options, config: Config, output: FeatureSums, slots: int) -> FeatureSums:
    """The state after a prefill: it has the same size for any number of slots."""
    return output


def _no_keys(log_k: Array, v: Array) -> FeatureSums:
    """Sums before the first key; made of arrays of the pass, so that they are sharded like these."""
    mass = jnp.zeros_like(log_k[:, 0])
    return FeatureSums(
        values=jnp.einsum("BKm,BKH->BKmH", mass, jnp.zeros_like(v[:, 0], jnp.float32)),
        mass=mass,
        top=jax.lax.stop_gradient(mass[..., 0]) + NOTHING,
        segment=jnp.zeros_like(mass, jnp.int32).sum((1, 2)),
    )


def segments_per_row(segments: Array | None, log_k: Array) -> Array:
    """Segments [B or 1,T], or None for one segment -> int32 [B,T]."""
    zeros = jnp.zeros_like(log_k, jnp.int32).sum((2, 3))
    return zeros if segments is None else zeros + replicate_length(segments)


def extend_segments(segments: Array, count: int) -> Array:
    """segments [B,T] -> [B,T+count]: the last one goes on. `jnp.pad` could not do that where the batch is sharded."""
    length = segments.shape[1]
    is_token = (jnp.arange(length + count) < length)[None]
    return jnp.where(is_token, jnp.pad(segments, ((0, 0), (0, count))), segments[:, -1:])


def cut_chunks(x: Array, size: int, **padding: Any) -> Array:
    """[B,T,...] -> [n,B,size,...]; the last chunk is padded."""
    x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % size), *((0, 0),) * (x.ndim - 2)), **padding)
    return jnp.moveaxis(x.reshape(x.shape[0], -1, size, *x.shape[2:]), 1, 0)


def _key_features(log_k: Array) -> tuple[Array, Array]:
    """log_k [B,S,K,m] -> features, each key's divided by its largest, and the logarithms [B,S,K] of the largest."""
    largest = _largest(log_k, (-1,))
    features = jnp.where(log_k > NOTHING, jnp.maximum(jnp.exp(log_k - largest), _LEAST), 0)
    return features, largest[..., 0]


def _largest(x: Array, axes: tuple[int, ...]) -> Array:
    """The largest elements along axes, without a gradient: they cancel in every ratio."""
    return jax.lax.stop_gradient(x.max(axes, keepdims=True))


def positive(x: Array) -> Array:
    """x, at least the smallest normal number: a query that sees no key gets zeros."""
    return jnp.maximum(x, jnp.finfo(jnp.float32).tiny)
