"""Routing Transformer (Roy et al. 2021): attention among tokens of the same cluster, by online k-means.

Queries are keys too, of mean 0 and variance 1. A token belongs to the cluster of the nearest centroid and sees the
tokens of this cluster (section 4.1, eq. 8). Centroids are moving averages of the keys of their clusters, hence running
state (`tfm.running`): training steps move them, without a gradient.

Clusters are of any size, and a token sees those tokens of its cluster that are near it (`tfm.attention.buckets`). The
paper instead lets every centroid take equally many tokens, the nearest ones of the text. Which tokens these are depends
on later tokens, so that text could not be generated token by token as it was trained.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.buckets import BucketedKeys
from tfm.attention.context import LayerCall, MixerOutput
from tfm.attention.project import merge_heads
from tfm.config.mixers.clustered import Routing
from tfm.config.model import Config
from tfm.mixers import Mixer, pad_slots, write_slots
from tfm.mixers.clustered import SharedAttention, attend_in_buckets, positioned, prepare, shared_specs
from tfm.ops import linear, standardized
from tfm.params import running_spec
from tfm.running import observe, running_value
from tfm.sharding import replicate_length

# Added to the variance of keys.
EPS = 1e-6


@struct.dataclass
class RoutingParams:
    """Projections, and for every cluster the moving averages of the sum of its keys and of their count [K,G,c,H+1]."""

    attention: SharedAttention
    clusters: Array


def specs(options: Routing, config: Config) -> RoutingParams:
    """The spec tree of one layer. A centroid starts as a random key that was seen once."""

    def init(key, shape, sharding):
        keys = jax.random.normal(key, (*shape[:-1], shape[-1] - 1), jnp.float32, out_sharding=sharding)
        return jnp.concatenate([keys, jnp.ones_like(keys[..., :1])], axis=-1)

    sizes = {"c": options.clusters, "h": config.sizes["H"] + 1}
    return RoutingParams(shared_specs(config), running_spec(config, "KGch", init, **sizes))


def forward(call: LayerCall, x: Array, score: Any, state: BucketedKeys | None) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    layer, options = call.params, call.options
    keys = standardized(linear(layer.attention.query, "BTD,DKGH->BTKGH", x).astype(jnp.float32), EPS)
    v = linear(layer.attention.value, "BTD,DKH->BTKH", x)
    clusters = nearest(keys, centroids(running_value(layer.clusters)))
    k = positioned(call, score, layer.attention, keys.astype(x.dtype))
    projected = (k * k.shape[-1] ** -0.5, k, v)
    heads, output = attend_in_buckets(call, projected, clusters[..., None], options.clusters, state)
    valid = call.prepared.rows.valid[:, :, None, None, None]
    is_member = jnp.where(valid, jax.nn.one_hot(clusters, options.clusters), 0)
    heads = observe(layer.clusters, heads, sums_of_clusters(keys, is_member), options.momentum)
    return merge_heads(layer.attention.projections, heads), output


def centroids(clusters: Array) -> Array:
    """Sums and counts [K,G,c,H+1] -> means [K,G,c,H]."""
    return clusters[..., :-1] / jnp.maximum(clusters[..., -1:], jnp.finfo(jnp.float32).tiny)


def nearest(keys: Array, centroids: Array) -> Array:
    """keys [B,T,K,G,H], centroids [K,G,c,H] -> int32 [B,T,K,G]: the centroid at the smallest distance."""
    products = jnp.einsum("BTKGH,KGcH->BTKGc", jax.lax.stop_gradient(keys), centroids, precision="highest")
    return (products - 0.5 * jnp.square(centroids).sum(-1)[None, None]).argmax(-1).astype(jnp.int32)


def sums_of_clusters(keys: Array, is_member: Array) -> Array:
    """keys [B,T,K,G,H], members [B,T,K,G,c], 1 or 0 -> float32 [K,G,c,H+1]: sum and count of the keys of each
    cluster."""
    counted = jnp.concatenate([keys, jnp.ones_like(keys[..., :1])], axis=-1)
    return jnp.einsum("BTKGc,BTKGh->BKGch", replicate_length(is_member), replicate_length(counted)).sum(0)


MIXER = Mixer(specs, prepare, forward, pad_slots, write_slots)
