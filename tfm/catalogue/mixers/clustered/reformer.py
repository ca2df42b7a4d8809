"""Reformer (Kitaev et al. 2020): attention among tokens whose keys have the same locality-sensitive hash.

Queries are keys too. The hash of a key is the largest of [xR; -xR], R a random matrix (section 2.2). The matrices are
drawn with the parameters and stored with them, or drawn from a seed, so that a model hashes always alike. What a token
sees of its bucket: `tfm.catalogue.mixers.clustered.buckets`; with `across`, `tfm.catalogue.mixers.clustered.chunks`.
"""

import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.attention.project import merge_heads
from tfm.catalogue.mixers.clustered import (
    ClusterContext,
    SharedAttention,
    attend_in_buckets,
    positioned,
    prepare,
    shared_specs,
    unit_length,
)
from tfm.catalogue.mixers.clustered.buckets import BucketedKeys
from tfm.catalogue.mixers.clustered.chunks import PADDING, cached_chunk_attention, chunk_attention, sort_chunks
from tfm.catalogue.mixers.token_states import move_slots, pad_slots, write_slots
from tfm.catalogue.options.mixers.clustered import Reformer
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Mixer, MixerOutput, Score
from tfm.ops import linear
from tfm.params import fixed_spec
from tfm.sharding import replicate_length


@struct.dataclass
class ReformerParams:
    """Projections, and the random matrices [K,G,H,r,b] of heads and r rounds, which are not trained; None where a seed
    decides them."""

    attention: SharedAttention
    rotations: Array | None


def specs(options: Reformer, config: Config) -> ReformerParams:
    """The spec tree of one layer."""

    def init(key, shape, sharding):
        return jax.random.normal(key, shape, jnp.float32, out_sharding=sharding)

    rotations = fixed_spec(config, "KGHrb", init, r=options.rounds, b=sum(options.sizes) // 2)
    return ReformerParams(shared_specs(config, options.bias), rotations if options.seed is None else None)


Call = LayerCall[Reformer, ReformerParams, ClusterContext]


def forward(call: Call, x: Array, score: Score, state: BucketedKeys | None) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    layer, options = call.params, call.options
    q = positioned(call, score, layer.attention, linear(layer.attention.query, "BTD,DKGH->BTKGH", x))
    v = linear(layer.attention.value, "BTD,DKH->BTKH", x)
    k = unit_length(q)
    buckets = hashes(k, _rotations(call), options.sizes)
    projected = q, k.astype(q.dtype), v
    if options.across:
        heads, output = _attend_across(call, projected, buckets, state)
    else:
        heads, output = attend_in_buckets(call, projected, buckets, math.prod(options.sizes), state)
    return merge_heads(layer.attention.projections, heads), output


def hashes(keys: Array, rotations: Array, sizes: tuple[int, ...]) -> Array:
    """keys [B,T,K,G,H], rotations [K,G,H,r,b] -> int32 [B,T,K,G,r]: the bucket of each round, from float32 products.

    sizes: the values of each hash, twice the columns b that are its own; buckets are all combinations of them
    """
    keys, rotations = (jax.lax.stop_gradient(x).astype(jnp.float32) for x in (keys, rotations))
    rotated = jnp.einsum("BTKGH,KGHrb->BTKGrb", keys, rotations, precision="highest")
    buckets, column, factor = jnp.zeros(rotated.shape[:-1], jnp.int32), 0, 1
    for size in sizes:
        part = rotated[..., column : column + size // 2]
        buckets = buckets + factor * jnp.concatenate([part, -part], axis=-1).argmax(-1).astype(jnp.int32)
        column, factor = column + size // 2, factor * size
    return buckets


def _rotations(call: Call) -> Array:
    """The random matrices [K,G,H,r,b] of a layer."""
    options, sizes = call.options, call.config.sizes
    if call.params.rotations is not None:
        return call.params.rotations
    shape = (*(sizes[letter] for letter in "KGH"), options.rounds, sum(options.sizes) // 2)
    return jnp.asarray(torch_normals(options.seed, math.prod(shape)).reshape(shape))


@cache
def torch_normals(seed: int, count: int) -> np.ndarray:
    """The float32 [count] that torch draws of a normal distribution on a CPU after `torch.manual_seed(seed)`, to 1e-6;
    at least 16.

    Uniform numbers of 24 bits that stand 8 apart in every 16 become two normal ones (Box & Muller 1958). Where 16 does
    not divide the count, the last 16 are drawn anew.
    """
    generator = np.random.RandomState(seed)

    def uniform(count: int) -> np.ndarray:
        return (generator.randint(0, 1 << 32, count, np.uint32) % (1 << 24)).astype(np.float32) / (1 << 24)

    values = uniform(count)
    normals = _box_muller(values[: count // 16 * 16])
    if count % 16:
        normals = np.concatenate([normals, values[normals.size :]])
        normals[-16:] = _box_muller(uniform(16))
    return normals


def _box_muller(values: np.ndarray) -> np.ndarray:
    """Uniform numbers [n] in [0, 1), n a multiple of 16 -> normal ones [n]."""
    first, second = np.moveaxis(values.reshape(-1, 2, 8), 1, 0)
    radius, angle = np.sqrt(-2 * np.log(1 - first)), 2 * np.pi * second
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1).astype(np.float32)


def _attend_across(
    call: Call, projected: tuple[Array, Array, Array], buckets: Array, state: BucketedKeys | None
) -> tuple[Array, MixerOutput]:
    """q and k [B,T,K,G,H], v [B,T,K,H], buckets [B,T,K,G,R] -> [B,T,K,G,H], and the output of the mixer."""
    (context, rows), size = call.prepared, call.options.chunk
    q, k, v = (replicate_length(x) for x in projected)
    new = BucketedKeys(k, v, jnp.where(rows.valid[:, :, None, None, None], buckets, PADDING))
    if state is None:
        chunks = sort_chunks(new.buckets, rows.valid, size, context.causal)
        heads = chunk_attention(q, k, v, chunks, call.config.attn_rate, call.key)
    else:
        heads = cached_chunk_attention(q, new, state, context.length, size)
    return heads, MixerOutput(new if context.keep else None)


MIXER = Mixer(specs, prepare, forward, pad_slots, write_slots, move_slots)
