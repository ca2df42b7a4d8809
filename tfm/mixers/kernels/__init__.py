"""Mixers whose scores are products of features: phi(q) phi(k). Sums over keys then need no scores of pairs.

With features of queries and keys, sum over s of phi(q) phi(k_s) v_s is phi(q) times a matrix, the sum of phi(k_s) v_s
(Katharopoulos et al. 2020, eq. 5). A decoder's state is that sum so far: it has a constant size. Features are kept as
logarithms, so that none overflows.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.context import AttentionContext, LayerCall, MixerOutput, refuse_bias
from tfm.attention.padding import valid_tokens_and_segments
from tfm.attention.project import Attention, keys_values, merge_heads, queries
from tfm.config.choices import Options
from tfm.config.model import Config
from tfm.sharding import replicate_length

# The logarithm of a feature that no key has.
NOTHING = -1e30


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
    """The context of a pass; bool [B or 1,T], which places hold tokens; and int32 [B or 1,T], the segment of each.

    None: all of them, and one.
    """

    context: AttentionContext
    valid: Array | None
    segments: Array | None


def prepare(options: Options, config: Config, context: AttentionContext) -> Prepared:
    """What of the mask a sum over keys can follow. Raises ValueError for the rest, such as windows."""
    return Prepared(context, *valid_tokens_and_segments(options, context))


def attend_by_features(
    call: LayerCall,
    layer: Attention,
    x: Array,
    score: Any,
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
    phi_q = jnp.exp(log_q - _largest(log_q, (-1,)))
    phi_k = jnp.exp(log_k - _largest(log_k, (1, 3)))
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
    sums, total, state = _scan((log_q, log_k, v, segments_per_row(segments, log_k)), state, chunk)
    return sums / positive(total)[..., None], state


def segment_sums(log_q: Array, log_k: Array, v: Array, segments: Array, chunk: int) -> Array:
    """The arguments of `causal_sums` -> float32 [B,T,K,G,H], where every query sees all keys of its segment.

    The keys up to the query are those of a pass from the left; the keys after it those of a pass from the right.
    """
    state = replace(_no_keys(log_k, v), top=_largest(log_k, (1, 3))[:, 0, :, 0])
    rows = (log_q, log_k, v, segments_per_row(segments, log_k))
    sums, total, _ = _scan(rows, state, chunk)
    later = _scan(tuple(jnp.flip(row, 1) for row in rows), state, chunk, sees_itself=False)
    later_sums, later_total = (jnp.flip(row, 1) for row in later[:2])
    return (sums + later_sums) / positive(total + later_total)[..., None]


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
        cut_chunks(log_q, size),
        cut_chunks(log_k, size, constant_values=NOTHING),
        cut_chunks(v.astype(jnp.float32), size),
        cut_chunks(extend_segments(segments, -length % size), size),
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


def start(options: Options, output: FeatureSums, slots: int) -> FeatureSums:
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


def _largest(x: Array, axes: tuple[int, ...]) -> Array:
    """The largest elements along axes, without a gradient: they cancel in every ratio."""
    return jax.lax.stop_gradient(x.max(axes, keepdims=True))


def positive(x: Array) -> Array:
    """x, at least the smallest normal number: a query that sees no key gets zeros."""
    return jnp.maximum(x, jnp.finfo(jnp.float32).tiny)
