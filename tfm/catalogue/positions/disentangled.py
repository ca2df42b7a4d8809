"""Disentangled attention: contents and distances are compared (DeBERTa: He et al. 2021).

The score of the query of token i and the key of token j is, with r the row of a table for their distance (eq. 2 and 4),

    (q_i k_j + q_i (r K) + (r Q) k_j) / sqrt(3 H)
     content   c2p         p2c

where K and Q are the projections of the layer's keys and queries, or projections of its own. With two terms, 3 is 2.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jax.sharding import PartitionSpec

from tfm.attention.bias import ScoreBias
from tfm.attention.project import Attention
from tfm.catalogue.options.positions.relative import Disentangled
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Position, refuse
from tfm.norms import Norm, norm, norm_specs
from tfm.ops import Linear, dropout, linear, linear_specs, lookup
from tfm.params import weight_spec
from tfm.positions import absolute
from tfm.sharding import replicate_length, spec_of, unshard_fsdp


@struct.dataclass
class RelativeEmbedding:
    """A row [r,D] for each bucket of distances, and the norm over them, None where a model has none."""

    table: Array
    norm: Norm | None


@struct.dataclass
class PositionProjections:
    """A layer's projections of distances to queries and keys; None where the layer reuses those of its tokens."""

    query: Linear | None
    key: Linear | None


def shared_specs(options: Disentangled, config: Config) -> RelativeEmbedding:
    """The table of all layers."""
    table = weight_spec(config, "rD", r=options.buckets)
    return RelativeEmbedding(table, norm_specs(config) if options.norm else None)


def specs(options: Disentangled, config: Config) -> PositionProjections:
    """The projections of one layer."""
    terms = () if options.share_projections else options.terms.split("_")
    return PositionProjections(
        query=linear_specs(config, "D", "KGH") if "p2c" in terms else None,
        key=linear_specs(config, "D", "KH") if "c2p" in terms else None,
    )


def prepare(call: LayerCall[Disentangled, RelativeEmbedding, None], context: AttentionContext) -> Array:
    """The rows [r,D] as layers read them."""
    if context.causal:
        refuse(call.options, "is for encoders, and this is a decoder", "try position=rotary")
    rows = unshard_fsdp(call.params.table)
    return rows if call.params.norm is None else norm(call.config, call.params.norm, rows)


def score(
    call: LayerCall[Disentangled, PositionProjections, Array], q: Array, k: Array, projections: Attention
) -> tuple[Array, Array, ScoreBias]:
    """q [B,T,K,G,H] and k [B,S,K,H] -> q for the first term of the score, k, and a bias that is the other terms.

    q is divided by the root of the number of terms (He et al. 2021, eq. 4); attention divides by that of the head size.
    """
    options, layer, terms = call.options, call.params, call.options.terms.split("_")
    key = None if call.key is None else jax.random.fold_in(call.key, 1)
    rows = dropout(call.prepared, call.config.dropout, key).astype(q.dtype)[None]
    q = q * (1 + len(terms)) ** -0.5
    scale, c2p, p2c = q.shape[-1] ** -0.5, None, None
    if "c2p" in terms:
        pos_key = linear(layer.key or projections.key, "BSD,DKH->BSKH", rows)[0]
        c2p = jnp.einsum("BTKGH,rKH->BKGTr", q * scale, pos_key, preferred_element_type=jnp.float32)
    if "p2c" in terms:
        pos_query = linear(layer.query or projections.query, "BTD,DKGH->BTKGH", rows)[0]
        pos_query = pos_query * (scale * (1 + len(terms)) ** -0.5)
        p2c = jnp.einsum("BSKH,rKGH->BKGSr", replicate_length(k), pos_query, preferred_element_type=jnp.float32)
    return q, k, DisentangledBias(c2p, p2c, options.buckets, options.max_distance)


@struct.dataclass
class DisentangledBias(ScoreBias):
    """The scores of every query [B,K,G,T,r] and of every key [B,K,G,S,r] with every bucket; for these queries and keys
    alone."""

    c2p: Array | None
    p2c: Array | None
    buckets: int = struct.field(pytree_node=False)
    max_distance: int | None = struct.field(pytree_node=False)

    blockwise = False
    batched = True

    def __call__(self, i, j):
        rows = bucket_of(i[:, :, None] - j[:, None, :], self.buckets, self.max_distance)[:, None, None]
        bias = jnp.float32(0) if self.c2p is None else _take_buckets(self.c2p, rows)
        if self.p2c is None:
            return bias
        return bias + _take_buckets(self.p2c, rows.swapaxes(-1, -2)).swapaxes(-1, -2)


def bucket_of(distance: Array, buckets: int, max_distance: int | None) -> Array:
    """distance i - j -> its row; the middle row is for 0.

    Beyond a quarter of the buckets on either side they widen on a logarithmic scale up to `max_distance`, which longer
    distances share; None: every distance has a bucket of its own.
    """
    span = buckets // 2
    if max_distance is not None:
        steps = jnp.asarray(_steps(span, max_distance))
        distance = jnp.sign(distance) * lookup(steps, jnp.minimum(jnp.abs(distance), len(steps) - 1)).astype(jnp.int32)
    return jnp.clip(distance + span, 0, buckets - 1)


def _steps(span: int, max_distance: int) -> np.ndarray:
    """How many buckets from the middle each distance is, from 0 on until that is at least `span`.

    Computed by numpy: at max_distance - 1 a float32 logarithm of XLA may end on either side of a whole number.
    """
    exact = span // 2
    growth = (max_distance - 1) / exact
    last = math.ceil(exact * growth ** ((span - exact) / (exact - 1))) + 1 if exact > 1 else exact
    shared = np.log(np.arange(exact, last + 1) / exact) / math.log(growth) * (exact - 1)
    return np.concatenate([np.arange(exact), exact + np.ceil(np.round(shared, 9))]).astype(np.int32)


def _take_buckets(x: Array, rows: Array) -> Array:
    """x [B,K,G,T,r] at rows [1,1,1,T,S] -> [B,K,G,T,S]."""
    take, mesh_axis = partial(jnp.take_along_axis, axis=-1), spec_of(rows)[-1]
    if mesh_axis is None:
        return take(x, rows)
    last = PartitionSpec(None, None, None, None, mesh_axis)  # each device takes what its own positions need
    return jax.shard_map(take, in_specs=(PartitionSpec(), last), out_specs=last, axis_names={mesh_axis})(x, rows)


POSITION = Position(absolute.absolute_specs, absolute.embed_absolute, shared_specs, specs, prepare, score)
