"""Disentangled attention: what contents and distances say of each other (DeBERTa: He et al. 2021).

The score of the query of token i and the key of token j is, with r the row of a table that stands for their distance (eq. 2 and 4),

    (q_i k_j + q_i (r K) + (r Q) k_j) / sqrt(3 H)
     content   c2p         p2c

where K and Q are the projections of the layer, or others of its own. Without one of the last two terms, 3 is 2.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jax.sharding import PartitionSpec

from tfm import params
from tfm.attention.bias import ScoreBias
from tfm.config.model import Config
from tfm.ops import Linear, Norm, linear, linear_specs, lookup, norm, norm_specs
from tfm.sharding import replicate_length, spec_of, unshard_fsdp


@struct.dataclass
class RelativeEmbedding:
    """A row [R,D] for each bucket of distances, and the norm over them, None where a model has none."""

    table: Array
    norm: Norm | None


def distance_specs(config: Config) -> RelativeEmbedding | None:
    """The table that all layers share; None for a model without."""
    if config.relative == "none":
        return None
    return RelativeEmbedding(params.weight_spec(config, "RD"), norm_specs(config) if config.relative_norm else None)


def place_specs(config: Config) -> tuple[Linear | None, Linear | None]:
    """A layer's projections of rows to queries and to keys; None for those that its queries and keys lend theirs to."""
    own = () if config.relative_shared else config.relative.split("_")
    return linear_specs(config, "D", "KGH") if "p2c" in own else None, linear_specs(
        config, "D", "KH"
    ) if "c2p" in own else None


def distance_rows(config: Config, distances: RelativeEmbedding | None) -> Array | None:
    """The rows [R,D] as layers read them."""
    if distances is None:
        return None
    rows = unshard_fsdp(distances.table)
    return rows if distances.norm is None else norm(config, distances.norm, rows)


def disentangled(layer: Any, config: Config, rows: Array, q: Array, k: Array) -> tuple[Array, ScoreBias]:
    """rows [R,D], q [B,T,K,G,H] and k [B,S,K,H] of an attention layer -> q for the first term of the score, and a bias that is the others.

    q is divided by the root of the number of terms (He et al. 2021, eq. 4; that of the head size is no business of ours).
    """
    terms, rows = config.relative.split("_"), rows.astype(q.dtype)[None]
    q = q * (1 + len(terms)) ** -0.5
    size, c2p, p2c = q.shape[-1] ** -0.5, None, None
    if "c2p" in terms:
        keys = linear(layer.place_key or layer.key, "BSD,DKH->BSKH", rows)[0]
        c2p = jnp.einsum("BTKGH,RKH->BKGTR", q * size, keys, preferred_element_type=jnp.float32)
    if "p2c" in terms:
        queries = linear(layer.place_query or layer.query, "BTD,DKGH->BTKGH", rows)[0] * (
            size * (1 + len(terms)) ** -0.5
        )
        p2c = jnp.einsum("BSKH,RKGH->BKGSR", replicate_length(k), queries, preferred_element_type=jnp.float32)
    return q, Disentangled(c2p, p2c, config.buckets, config.bucket_distance)


@struct.dataclass
class Disentangled(ScoreBias):
    """What each query [B,K,G,T,R] and each key [B,K,G,S,R] has to do with each bucket; it knows these queries and keys alone."""

    c2p: Array | None
    p2c: Array | None
    buckets: int = struct.field(pytree_node=False)
    far: int = struct.field(pytree_node=False)

    blockwise = False
    batched = True

    def __call__(self, i, j):  # noqa: D102
        rows = bucket_of(i[:, :, None] - j[:, None, :], self.buckets, self.far)[:, None, None]
        bias = jnp.float32(0) if self.c2p is None else _at(self.c2p, rows)
        return bias if self.p2c is None else bias + _at(self.p2c, rows.swapaxes(-1, -2)).swapaxes(-1, -2)


def bucket_of(distance: Array, buckets: int, far: int) -> Array:
    """The row of each distance i - j: the middle one for 0. From a quarter of them to either side, buckets are ever wider, on a logarithmic
    scale up to `far`; with far=0 each distance has its own. What is further away shares the last one."""
    span = buckets // 2
    if far:
        steps = jnp.asarray(_steps(span, far))
        distance = jnp.sign(distance) * lookup(steps, jnp.minimum(jnp.abs(distance), len(steps) - 1)).astype(jnp.int32)
    return jnp.clip(distance + span, 0, buckets - 1)


def _steps(span: int, far: int) -> np.ndarray:
    """How many buckets from the middle each distance from 0 on is, until that is no less than `span`.

    Computed here, not by XLA: at far - 1 a float32 logarithm may end on either side of a whole number.
    """
    short = span // 2
    growth = (far - 1) / short
    last = math.ceil(short * growth ** ((span - short) / (short - 1))) + 1 if short > 1 else short
    wide = np.log(np.arange(short, last + 1) / short) / math.log(growth) * (short - 1)
    return np.concatenate([np.arange(short), short + np.ceil(np.round(wide, 9))]).astype(np.int32)


def _at(x: Array, rows: Array) -> Array:
    """x [B,K,G,T,R] at rows [1,1,1,T,S] -> [B,K,G,T,S]."""
    take, place = partial(jnp.take_along_axis, axis=-1), spec_of(rows)[-1]
    if place is None:
        return take(x, rows)
    last = PartitionSpec(None, None, None, None, place)  # each device takes what its own positions need
    return jax.shard_map(take, in_specs=(PartitionSpec(), last), out_specs=last, axis_names={place})(x, rows)
