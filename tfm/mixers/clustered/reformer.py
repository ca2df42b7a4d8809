"""Reformer (Kitaev et al. 2020): attention among tokens whose keys have the same locality-sensitive hash.

Queries are keys too. The hash of a key is the largest of [xR; -xR], R a random matrix (section 2.2). The matrices are
drawn with the parameters and stored with them, so that a model hashes always alike. What a token sees of its bucket:
`tfm.attention.buckets`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.buckets import BucketedKeys
from tfm.attention.context import LayerCall, MixerOutput
from tfm.attention.project import merge_heads
from tfm.config.mixers.clustered import Reformer
from tfm.config.model import Config
from tfm.mixers import Mixer, pad_slots, write_slots
from tfm.mixers.clustered import SharedAttention, attend_in_buckets, positioned, prepare, shared_specs, unit_length
from tfm.ops import linear
from tfm.params import fixed_spec


@struct.dataclass
class ReformerParams:
    """Projections, and the random matrices [H,r,b] of r rounds, which are not trained."""

    attention: SharedAttention
    rotations: Array


def specs(options: Reformer, config: Config) -> ReformerParams:
    """The spec tree of one layer."""

    def init(key, shape, sharding):
        return jax.random.normal(key, shape, jnp.float32, out_sharding=sharding)

    rotations = fixed_spec(config, "Hrb", init, r=options.rounds, b=options.buckets // 2)
    return ReformerParams(shared_specs(config), rotations)


def forward(call: LayerCall, x: Array, score: Any, state: BucketedKeys | None) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    layer, options = call.params, call.options
    q = positioned(call, score, layer.attention, linear(layer.attention.query, "BTD,DKGH->BTKGH", x))
    v = linear(layer.attention.value, "BTD,DKH->BTKH", x)
    k = unit_length(q)
    buckets = hashes(k, layer.rotations)
    heads, output = attend_in_buckets(call, (q, k.astype(q.dtype), v), buckets, options.buckets, state)
    return merge_heads(layer.attention.projections, heads), output


def hashes(keys: Array, rotations: Array) -> Array:
    """keys [B,T,K,G,H], rotations [H,r,b] -> int32 [B,T,K,G,r] below 2b: the hash of each round, from float32
    products."""
    keys, rotations = (jax.lax.stop_gradient(x).astype(jnp.float32) for x in (keys, rotations))
    rotated = jnp.einsum("BTKGH,Hrb->BTKGrb", keys, rotations, precision="highest")
    return jnp.concatenate([rotated, -rotated], axis=-1).argmax(-1).astype(jnp.int32)


MIXER = Mixer(specs, prepare, forward, pad_slots, write_slots)
