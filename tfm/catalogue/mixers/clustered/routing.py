"""Routing Transformer (Roy et al. 2021): attention among tokens of the same cluster, by online k-means.

Queries are keys too, of mean 0 and variance 1. A token belongs to the cluster of the nearest centroid and sees the
tokens of this cluster (section 4.1, eq. 8). Centroids are moving averages of the keys of their clusters, hence running
state (`running.py`): training steps move them, without a gradient.

Clusters are of any size, and a token sees those tokens of its cluster that are near it (`buckets.py`). The
paper instead lets each centroid take equally many tokens, the nearest ones of the text (algorithm 1). Which tokens
these are depends on later tokens, so that text could not be generated token by token as it was trained. An encoder does
as the paper with `window`: a token is then the mean of what it is in all clusters that take it, and zeros where none
does. Queries are keys there too, and a token sees itself.
"""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.project import merge_heads
from tfm.catalogue.mixers.clustered import ClusterContext, SharedAttention, attend_in_buckets, positioned, shared_specs
from tfm.catalogue.mixers.clustered import prepare as prepare_rows
from tfm.catalogue.mixers.clustered.buckets import BucketedKeys
from tfm.catalogue.mixers.clustered.running import observe, running_value
from tfm.catalogue.mixers.token_states import move_slots, pad_slots, write_slots
from tfm.catalogue.options.mixers.clustered import Routing
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Mixer, MixerOutput, Score, refuse
from tfm.masks.mask import MASK_VALUE
from tfm.norms import standardized
from tfm.ops import dropout, linear
from tfm.params import running_spec
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


def prepare(call: LayerCall[Routing, None, None], context: AttentionContext) -> ClusterContext:
    """The tokens and segments of the pass. Raises ValueError for masks of other kinds, and for causality and segments
    where centroids take tokens of a whole row."""
    prepared = prepare_rows(call, context)
    if call.options.window is not None and context.causal:
        refuse(call.options, "takes the nearest tokens of a whole text", "a decoder needs mixer.window=none")
    if call.options.window is not None and prepared.rows.segments is not None:
        refuse(call.options, "takes the nearest tokens of a whole row", "put every text into a row of its own")
    return prepared


def forward(
    call: LayerCall[Routing, RoutingParams, ClusterContext], x: Array, score: Score, state: BucketedKeys | None
) -> tuple[Array, MixerOutput]:
    """x [B,T,D] -> [B,T,D]."""
    layer, options = call.params, call.options
    keys = standardized(linear(layer.attention.query, "BTD,DKGH->BTKGH", x).astype(jnp.float32), EPS)
    v = linear(layer.attention.value, "BTD,DKH->BTKH", x)
    closeness = closeness_to(keys, centroids(running_value(layer.clusters)))
    clusters = closeness.argmax(-1).astype(jnp.int32)
    k = positioned(call, score, layer.attention, keys.astype(x.dtype))
    projected = (k * k.shape[-1] ** -0.5, k, v)
    if options.window is None:
        heads, output = attend_in_buckets(call, projected, clusters[..., None], options.clusters, state)
    else:
        heads, output = attend_to_nearest(call, projected, closeness), MixerOutput()
    valid = call.prepared.rows.valid[:, :, None, None, None]
    is_member = jnp.where(valid, jax.nn.one_hot(clusters, options.clusters), 0)
    heads = observe(layer.clusters, heads, sums_of_clusters(keys, is_member), options.momentum)
    return merge_heads(layer.attention.projections, heads), output


def centroids(clusters: Array) -> Array:
    """Sums and counts [K,G,c,H+1] -> means [K,G,c,H]."""
    return clusters[..., :-1] / jnp.maximum(clusters[..., -1:], jnp.finfo(jnp.float32).tiny)


def closeness_to(keys: Array, centroids: Array) -> Array:
    """keys [B,T,K,G,H], centroids [K,G,c,H] -> float32 [B,T,K,G,c]: the larger, the smaller is the distance."""
    products = jnp.einsum("BTKGH,KGcH->BTKGc", jax.lax.stop_gradient(keys), centroids, precision="highest")
    return products - 0.5 * jnp.square(centroids).sum(-1)[None, None]


def attend_to_nearest(
    call: LayerCall[Routing, RoutingParams, ClusterContext], projected: tuple[Array, Array, Array], closeness: Array
) -> Array:
    """q and k [B,T,K,G,H], v [B,T,K,H] and closeness [B,T,K,G,c] -> [B,T,K,G,H]: attention among the tokens that each
    centroid takes, and the mean of its results (Roy et al. 2021, algorithm 1); softmax in float32."""
    q, k, v = (replicate_length(x) for x in projected)
    v = v[:, :, :, None] + jnp.zeros_like(q)
    closeness = jnp.where(call.prepared.rows.valid[:, :, None, None, None], closeness, -jnp.inf)
    assert call.options.window is not None, "the caller has looked"
    size = min(call.options.window, q.shape[1])
    top, index = jax.lax.top_k(jnp.moveaxis(replicate_length(closeness), 1, -1), size)
    index, is_token = index.reshape(*index.shape[:3], -1), top > -jnp.inf

    def take(rows: Array) -> Array:
        """[B,T,K,G,H] -> [B,K,G,c,w,H]."""
        rows = jnp.take_along_axis(jnp.moveaxis(rows, 1, 3), index[..., None], axis=3)
        return rows.reshape(*top.shape, -1)

    q, k, v = take(q), take(k), take(v)
    scores = jnp.einsum("BKGcqH,BKGcsH->BKGcqs", q, k, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(jnp.where(is_token[..., None, :], scores, MASK_VALUE), axis=-1)
    weights = dropout(weights, call.config.attn_rate, call.key).astype(v.dtype)
    heads = jnp.einsum("BKGcqs,BKGcsH->BKGcqH", weights, v)
    counted = jnp.concatenate([heads, jnp.ones_like(heads[..., :1])], axis=-1) * is_token[..., None].astype(v.dtype)
    sums = scatter(counted.reshape(*index.shape, -1), index, closeness.shape[1])
    return jnp.moveaxis(sums[..., :-1] / jnp.maximum(sums[..., -1:], 1), 3, 1)


def scatter(rows: Array, index: Array, length: int) -> Array:
    """rows [B,K,G,n,H] and the places of their tokens [B,K,G,n] -> [B,K,G,T,H], their sums."""

    def add(rows: Array, index: Array) -> Array:
        return jnp.zeros((length, rows.shape[-1]), rows.dtype).at[index].add(rows)

    return jax.vmap(jax.vmap(jax.vmap(add)))(rows, index)


def sums_of_clusters(keys: Array, is_member: Array) -> Array:
    """keys [B,T,K,G,H], members [B,T,K,G,c], 1 or 0 -> float32 [K,G,c,H+1]: sum and count of the keys of each
    cluster."""
    counted = jnp.concatenate([keys, jnp.ones_like(keys[..., :1])], axis=-1)
    return jnp.einsum("BTKGc,BTKGh->BKGch", replicate_length(is_member), replicate_length(counted)).sum(0)


MIXER = Mixer(specs, prepare, forward, pad_slots, write_slots, move_slots)
