"""Attention in chunks of tokens that are sorted by bucket (Kitaev et al. 2020, section 2.3), in time linear in the
length.

The tokens of all buckets, and of all rounds behind one another, are cut into chunks; a token sees its own chunk and
the one before it, the first chunk of all the last one. A text of one chunk is not sorted: all its tokens see each
other. Rows are as long as a multiple of a chunk, with padding in a last bucket of each round. As in transformers, a
token that two rounds show counts twice.

`buckets.py` cuts each bucket by itself, so that neither later tokens nor padding change what a token sees.
"""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import weighted_sum
from tfm.catalogue.mixers.clustered.buckets import SELF_SCORE, BucketedKeys, permute
from tfm.masks.mask import MASK_VALUE
from tfm.ops import dropout
from tfm.sharding import replicate_length

# The bucket of padding, and where there is no token yet.
PADDING, NOWHERE = 2**31 - 2, 2**31 - 1


@struct.dataclass
class Chunks:
    """Sorted tokens, int32 [R,B,K,G,S]; S is the length, rounded up to a multiple of the chunk.

    order: the token in each place
    place: the place of each token
    valid: bool [B or 1,S], the tokens that others may see
    size: tokens of a chunk
    causal: no token sees a later one
    """

    order: Array
    place: Array
    valid: Array
    size: int = struct.field(pytree_node=False)
    causal: bool = struct.field(pytree_node=False)

    def cut(self, x: Array) -> Array:
        """[R,B,K,G,S,...] in sorted order -> [B,K,G,n,C,...]: the chunks of all rounds."""
        x = jnp.moveaxis(x, 0, 3)
        x = x.reshape(*x.shape[:4], -1, self.size, *x.shape[5:])  # a mesh wants two steps
        return x.reshape(*x.shape[:3], -1, *x.shape[5:])

    def join(self, x: Array) -> Array:
        """Inverse of `cut`: [B,K,G,n,C,...] -> [R,B,K,G,S,...]."""
        x = x.reshape(*x.shape[:3], len(self.order), -1, *x.shape[4:])
        return jnp.moveaxis(x.reshape(*x.shape[:4], -1, *x.shape[6:]), 3, 0)


def sort_chunks(buckets: Array, valid: Array, size: int, causal: bool) -> Chunks:
    """buckets int32 [B,T,K,G,R], that of padding `PADDING`, and tokens bool [B or 1,T] -> chunks of `size` tokens."""
    buckets = jnp.moveaxis(replicate_length(buckets), (4, 1), (0, 4))
    valid, length = replicate_length(valid), buckets.shape[-1]
    if length <= size:
        size, buckets = length, jnp.zeros_like(buckets[:1])
    behind = -length % size
    buckets = jnp.pad(buckets, ((0, 0),) * 4 + ((0, behind),), constant_values=PADDING)
    places = jnp.zeros_like(buckets) + jnp.expand_dims(jnp.arange(length + behind), range(4))
    order = jax.lax.sort((buckets, places), num_keys=1, is_stable=True)[1]
    place = jax.lax.sort((order, places), num_keys=1)[1]
    return Chunks(order, place, jnp.pad(valid, ((0, 0), (0, behind))), size, causal)


def chunk_attention(q: Array, k: Array, v: Array, chunks: Chunks, rate: float = 0.0, key: Array | None = None) -> Array:
    """q and k [B,T,K,G,H], v [B,T,K,H] -> [B,T,K,G,H]; scores are products of q and k, softmax in float32.

    Queries are their own keys, so a token sees itself only if it sees no other one. `rate` and `key` drop attention
    weights.
    """
    length, behind = q.shape[1], chunks.order.shape[-1] - q.shape[1]
    q, k, v = (jnp.pad(replicate_length(x), ((0, 0), (0, behind)) + ((0, 0),) * (x.ndim - 2)) for x in (q, k, v))
    q, k = (jnp.moveaxis(x, 1, 3) for x in (q, k))
    v = jnp.moveaxis(v, 1, 2)[:, :, None] + jnp.zeros_like(q)

    def sort(row: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(permute(x, *row) for x in (q, k, v))

    def restore(row: tuple[Array, ...]) -> tuple[Array, Array]:
        order, place, heads, mass = row
        return permute(heads, place, order), permute(mass, place, order)

    rounds = chunks.order, chunks.place
    queries, keys, values = map(chunks.cut, jax.lax.map(sort, rounds))
    heads, mass = map(chunks.join, _attend(queries, keys, values, chunks, rate, key))
    heads, mass = jax.lax.map(restore, (*rounds, heads, mass))
    # Not jax.nn.softmax: tokens that see nothing but themselves are rounded as in transformers, to 0.4 %.
    weights = jnp.exp(mass - jax.nn.logsumexp(mass, axis=0, keepdims=True)).astype(heads.dtype)
    return jnp.moveaxis((weights[..., None] * heads).sum(0), 3, 1)[:, :length]


def cached_chunk_attention(q: Array, new: BucketedKeys, state: BucketedKeys, length: Array | int, size: int) -> Array:
    """q [B,T,K,G,H], the keys, values and buckets of these T tokens, and a state with `length` tokens -> [B,T,K,G,H].

    Each token gets what causal `chunk_attention` over the text up to itself gives it. Tokens before it keep what they
    got, though their chunks are others in a longer text.
    """
    slots, tokens = state.keys.shape[1], q.shape[1]
    buckets = jnp.moveaxis(jnp.concatenate([state.buckets, new.buckets], axis=1), (4, 1), (0, 4))
    i, j = slots + jnp.arange(tokens)[:, None], jnp.arange(slots + tokens)[None]
    exists = (j <= i) & ((j < length) | (j >= slots))
    last_chunk = jnp.expand_dims((length + jnp.arange(tokens)[:, None]) // size, range(4))
    buckets = jnp.where(jnp.expand_dims(exists, range(4)), buckets[..., None, :], NOWHERE)
    chunks = jnp.argsort(jnp.argsort(buckets, axis=-1, stable=True), axis=-1) // size
    own = jnp.take_along_axis(chunks, jnp.zeros_like(chunks[..., :1]) + jnp.expand_dims(i, range(4)), axis=-1)
    before = jnp.where(own == 0, jnp.roll(chunks, 1, axis=0) == last_chunk, chunks == own - 1)
    counts = ((chunks == own).astype(jnp.float32) + before.astype(jnp.float32)) * (buckets < PADDING)
    counts = jnp.where(last_chunk[0] == 0, counts[0] > 0, counts.sum(0))
    parts = [
        jnp.einsum("BTKGH,BSKGH->BKGTS", q, keys, preferred_element_type=jnp.float32) for keys in (state.keys, new.keys)
    ]
    scores = jnp.where(counts > 0, jnp.concatenate(parts, axis=-1) + jnp.log(jnp.maximum(counts, 1)), MASK_VALUE)
    weights = jax.nn.softmax(jnp.where(jnp.expand_dims(i == j, range(3)), SELF_SCORE, scores), axis=-1)
    return weighted_sum(weights[..., :slots], state.values) + weighted_sum(weights[..., slots:], new.values)


def _attend(q: Array, k: Array, v: Array, chunks: Chunks, rate: float, key: Array | None) -> tuple[Array, Array]:
    """Chunks q, k and v [B,K,G,n,C,H] -> [B,K,G,n,C,H], and the logarithm of the sum of exponentials [B,K,G,n,C]."""
    valid = jnp.broadcast_to(chunks.valid[None, :, None, None], chunks.order.shape)
    valid = chunks.cut(jnp.take_along_axis(valid, chunks.order, axis=4))
    tokens = chunks.cut(chunks.order)
    keys, values, key_tokens, seen = map(_with_neighbours, (k, v, tokens, valid))
    tokens, key_tokens, seen = tokens[..., None], key_tokens[..., None, :], seen[..., None, :]
    scores = jnp.einsum("BKGnQH,BKGnSH->BKGnQS", q, keys, preferred_element_type=jnp.float32)
    scores = jnp.where(seen & (key_tokens <= tokens) if chunks.causal else seen, scores, MASK_VALUE)
    scores = jnp.where(key_tokens == tokens, SELF_SCORE, scores)
    mass = jax.nn.logsumexp(scores, axis=-1)
    weights = dropout(jnp.exp(scores - mass[..., None]), rate, key).astype(v.dtype)
    return jnp.einsum("BKGnQS,BKGnSH->BKGnQH", weights, values), mass


def _with_neighbours(x: Array) -> Array:
    """Chunks [B,K,G,n,C,...] -> [B,K,G,n,S,...]: the chunk before each, and itself; a chunk alone has none."""
    return x if x.shape[3] == 1 else jnp.concatenate([jnp.roll(x, 1, axis=3), x], axis=4)
