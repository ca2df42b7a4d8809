"""Attention in buckets: a token sees the tokens near it in its bucket, in time linear in the length.

In each round a token has one bucket. The tokens of a bucket, in their order, are cut into chunks; a token sees its own
chunk and the one before it (Kitaev et al. 2020, section 2.3). Over several rounds it sees what any round shows it.
Queries are their own keys, so a token sees itself only if it sees no other token (section 2.2).

Chunks begin anew in every bucket of every segment. Those of Kitaev et al. are cut out of all buckets together: there a
token's chunk depends on later tokens, on padding and on the texts in the same row.

Those are `chunk_attention`, for models that were trained so.

    bucket of tokens 0..7     1 0 1 1 0 1 1 0
    sorted, chunks of two     1 4 | 7 || 0 2 | 3 5 | 6        token 5 sees 0 2 3, token 6 sees 3 5
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import weighted_sum
from tfm.masks.mask import MASK_VALUE
from tfm.ops import dropout
from tfm.sharding import replicate_length

# The score of a token for itself.
SELF_SCORE = -1e5


@struct.dataclass
class Rounds:
    """What tokens see, int32 [R,B,K,G,T], by the places that sorting by bucket puts tokens in.

    order: the token in each place
    place: the place of each token
    first, end: a token sees the places first <= place < end
    chunk: tokens of a chunk
    causal: no token sees a later one
    """

    order: Array
    place: Array
    first: Array
    end: Array
    chunk: int = struct.field(pytree_node=False)
    causal: bool = struct.field(pytree_node=False)


@struct.dataclass
class BucketedKeys:
    """Keys [B,S,K,G,H], values [B,S,K,H] and buckets int32 [B,S,K,G,R] of one layer; leaves of several layers have an
    axis for them in front."""

    keys: Array
    values: Array
    buckets: Array


def bucket_attention(
    q: Array, k: Array, v: Array, rounds: Rounds, rate: float = 0.0, key: Array | None = None
) -> Array:
    """q and k [B,T,K,G,H], v [B,T,K,H] -> [B,T,K,G,H]; scores are products of q and k, softmax in float32.

    Equal to softmax attention over all pairs that a round allows, counted once. `rate` and `key` drop attention
    weights, in each round anew.
    """
    q, k = (jnp.moveaxis(replicate_length(rows), 1, 3) for rows in (q, k))
    v = jnp.moveaxis(replicate_length(v), 1, 2)[:, :, None] + jnp.zeros_like(q)
    keys = jax.random.split(key, len(rounds.order)) if key is not None and rate else None
    run = jax.checkpoint(partial(_one_round, q, k, v, rounds, rate))
    heads, mass = jax.lax.map(lambda inputs: run(*inputs), (rounds, keys))
    weights = jax.nn.softmax(mass, axis=0).astype(heads.dtype)
    return jnp.moveaxis((weights[..., None] * heads).sum(0), 3, 1)


def sort_rounds(buckets: Array, segments: Array | None, chunk: int, causal: bool) -> Rounds:
    """buckets int32 [B,T,K,G,R], segments [B or 1,T] -> what tokens see."""
    buckets = jnp.moveaxis(replicate_length(buckets), (4, 1), (0, 4))
    places = jnp.zeros_like(buckets) + jnp.expand_dims(jnp.arange(buckets.shape[-1]), range(4))
    labels = [buckets]
    if segments is not None:
        labels = [jnp.zeros_like(buckets) + replicate_length(segments).astype(jnp.int32)[None, :, None, None], buckets]
    *labels, order = jax.lax.sort((*labels, places), num_keys=len(labels))
    is_start = places == 0
    for label in labels:
        is_start = is_start | (label != jnp.roll(label, 1, axis=-1))
    start = jax.lax.cummax(jnp.where(is_start, places, 0), axis=4)
    chunk_start = start + (places - start) // chunk * chunk
    end = places + 1 if causal else jnp.minimum(chunk_start + chunk, _ends(is_start, places))
    place = jax.lax.sort((order, places), num_keys=1)[1]
    first = jnp.maximum(chunk_start - chunk, start)
    return Rounds(order, place, _take(first, place), _take(end, place), chunk, causal)


def cached_bucket_attention(q: Array, new: BucketedKeys, state: BucketedKeys, length: Array | int, chunk: int) -> Array:
    """q [B,T,K,G,H], the keys, values and buckets of these T tokens, and a state with `length` tokens -> [B,T,K,G,H].

    Equal to causal `bucket_attention` over all tokens. Scores are concatenated, never keys.
    """
    slots, tokens = state.keys.shape[1], q.shape[1]
    buckets = jnp.moveaxis(jnp.concatenate([state.buckets, new.buckets], axis=1), (4, 1), (0, 4))
    i, j = slots + jnp.arange(tokens)[:, None], jnp.arange(slots + tokens)[None]
    seen = (j <= i) & ((j < length) | (j >= slots))
    same = (buckets[..., slots:, None] == buckets[..., None, :]) & jnp.expand_dims(seen, range(4))
    chunks = (jnp.cumsum(same, axis=-1, dtype=jnp.int32) - 1) // chunk
    seen = (same & (chunks >= chunks[..., -1:] - 1)).any(0)
    parts = [
        jnp.einsum("BTKGH,BSKGH->BKGTS", q, keys, preferred_element_type=jnp.float32) for keys in (state.keys, new.keys)
    ]
    scores = jnp.where(seen, jnp.concatenate(parts, axis=-1), MASK_VALUE)
    weights = jax.nn.softmax(jnp.where(jnp.expand_dims(i == j, range(3)), SELF_SCORE, scores), axis=-1)
    return weighted_sum(weights[..., :slots], state.values) + weighted_sum(weights[..., slots:], new.values)


def _one_round(
    q: Array, k: Array, v: Array, rounds: Rounds, rate: float, own: Rounds, key: Array | None
) -> tuple[Array, Array]:
    """q, k and v [B,K,G,T,H] -> the result of one round [B,K,G,T,H], and the logarithm of its sum of exponentials
    [B,K,G,T]."""
    q, k, v = (permute(rows, own.order, own.place) for rows in (q, k, v))
    scores = jnp.einsum("BKGnQH,BKGnSH->BKGnQS", _blocks(q, own), _windows(k, own), preferred_element_type=jnp.float32)
    if len(rounds.order) > 1:
        scores = scores - jnp.log(_counts(rounds, own))
    scores = jnp.where(_visible(own, own), scores, MASK_VALUE)
    is_self = _blocks(_take(own.place, own.order), own)[..., None] == _key_places(own, own)
    scores = jnp.where(is_self, SELF_SCORE, scores)
    mass = jax.nn.logsumexp(scores, axis=-1)
    weights = dropout(jnp.exp(scores - mass[..., None]), rate, key).astype(v.dtype)
    heads = jnp.einsum("BKGnQS,BKGnSH->BKGnQH", weights, _windows(v, own))
    heads, mass = (x.reshape(*x.shape[:3], -1, *x.shape[5:])[:, :, :, : q.shape[3]] for x in (heads, mass))
    return permute(heads, own.place, own.order), permute(mass, own.place, own.order)


def _counts(rounds: Rounds, own: Rounds) -> Array:
    """In how many rounds a query sees a key, at least 1, for the blocks of one round: float32 [B,K,G,n,Q,S]."""

    def add(count: Array, row: Rounds) -> tuple[Array, None]:
        return count + _visible(row, own).astype(jnp.int32), None

    zeros = jnp.zeros_like(_visible(own, own), jnp.int32)
    return jnp.maximum(jax.lax.scan(add, zeros, rounds)[0], 1).astype(jnp.float32)


def _visible(row: Rounds, own: Rounds) -> Array:
    """Whether a query sees a key in a round, for the blocks of a round of its own: bool [B,K,G,n,Q,S]."""
    first, end = (_blocks(_take(x, own.order), own)[..., None] for x in (row.first, row.end))
    places = _key_places(row, own)
    return (first <= places) & (places < end)


def _key_places(row: Rounds, own: Rounds) -> Array:
    """The places of keys in a round, for the blocks of a round of its own: int32 [B,K,G,n,1,S], -1 beyond the text."""
    return _windows(_take(row.place, own.order) + 1, own)[..., None, :] - 1


def _blocks(x: Array, rounds: Rounds) -> Array:
    """[B,K,G,T,...] in sorted order -> [B,K,G,n,C,...], with zeros behind the end."""
    size = min(rounds.chunk, x.shape[3])
    x = jnp.pad(x, ((0, 0),) * 3 + ((0, -x.shape[3] % size),) + ((0, 0),) * (x.ndim - 4))
    return x.reshape(*x.shape[:3], -1, size, *x.shape[4:])


def _windows(x: Array, rounds: Rounds) -> Array:
    """[B,K,G,T,...] in sorted order -> [B,K,G,n,S,...]: all that a block may see.

    A chunk may begin within a block, so these are two blocks before it, itself and, without causality, the next one.
    """
    blocks = _blocks(x, rounds)
    count, after = blocks.shape[3], 0 if rounds.causal else 1
    padded = jnp.pad(blocks, ((0, 0),) * 3 + ((2, after),) + ((0, 0),) * (blocks.ndim - 4))
    return jnp.concatenate([padded[:, :, :, shift : shift + count] for shift in range(3 + after)], axis=4)


def _ends(is_start: Array, places: Array) -> Array:
    """The end of the bucket of every place: where the next one starts."""
    length = places.shape[-1]
    starts = jnp.where(is_start & (places > 0), places, length)
    later = jnp.where(places == length - 1, length, jnp.roll(starts, -1, axis=-1))
    return jax.lax.cummin(later, axis=4, reverse=True)


def _take(x: Array, index: Array) -> Array:
    """x [...,T] at the index [...,T]."""
    return jnp.take_along_axis(x, index, axis=-1)


@jax.custom_vjp
def permute(x: Array, order: Array, place: Array) -> Array:
    """x [B,K,G,T,...] -> x[order]; place is the inverse of order. The gradient is a gather too, which is faster than
    the scatter of an index."""
    return jnp.take_along_axis(x, jnp.expand_dims(order, range(4, x.ndim)), axis=3)


def _permute_forward(x: Array, order: Array, place: Array):
    return permute(x, order, place), (order, place)


def _permute_backward(residuals: tuple[Array, Array], dy: Array):
    order, place = residuals
    return permute(dy, place, order), None, None


permute.defvjp(_permute_forward, _permute_backward)
