"""Untied positions: contents are compared with contents, positions with positions (TUPE: Ke et al. 2021).

With p the normalized vector of a position, and projections U and V that all layers share, the score of query i and key
j is (section 3.1)

    (q_i k_j + (p_i U) (p_j V)) / sqrt(2 H)

Heads of the size 2 H compute it: positions stand behind contents in queries and in keys. The first token may be untied
from positions (section 3.2): its row of the second term is a number of each head, its column another.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.attention.project import Attention
from tfm.catalogue.options.positions.relative import Tupe
from tfm.catalogue.positions.t5 import T5Bias
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Position
from tfm.norms import Norm, norm, norm_specs
from tfm.ops import Linear, linear, linear_specs, lookup
from tfm.params import bias_spec, weight_spec
from tfm.sharding import replicate_length, unshard_fsdp


@struct.dataclass
class UntiedPositions:
    """A row [P,D] for each position, the norm over them, and their projections to queries and keys.

    first: numbers [2,K,G] of the row and the column of the first token, or None
    buckets: bias [r,K,G] of buckets of distances, or None
    """

    table: Array
    norm: Norm
    query: Linear
    key: Linear
    first: Array | None
    buckets: Array | None


class ProjectedPositions(NamedTuple):
    """Positions as queries [B,T,K,G,H] and keys [B,T,K,H], and the bias of all layers."""

    queries: Array
    keys: Array
    bias: ScoreBias


@struct.dataclass
class UntiedBias(ScoreBias):
    """The numbers of the first token, and the bias of distances between all others.

    is_first_query, is_first_key: bool [B,T] and [B,S]
    starts: int32 [B,1], the slot of the first token where keys are those of a decode state
    """

    first: Array | None
    distances: T5Bias | None
    is_first_query: Array
    is_first_key: Array
    starts: Array

    blockwise = False

    def __call__(self, i, j):
        bias = jnp.zeros((1, 1, 1, 1, 1)) if self.distances is None else self.distances(i, j)
        if self.first is None:
            return bias
        row, column = (unshard_fsdp(numbers)[None, :, :, None, None] for numbers in self.first.astype(jnp.float32))
        bias = jnp.where(self.is_first_key[:, None, None, None], column, bias)
        return jnp.where(self.is_first_query[:, None, None, :, None], row, bias)

    def for_keys(self, keys):
        return replace(self, is_first_key=jnp.arange(keys.shape[1])[None] == self.starts)

    def for_queries(self, start, count):
        rows = jax.lax.dynamic_slice_in_dim(self.is_first_query, start, count, axis=1)
        return replace(self, is_first_query=rows)


def shared_specs(options: Tupe, config: Config) -> UntiedPositions:
    """The parameters of all layers."""
    return UntiedPositions(
        table=weight_spec(config, "PD"),
        norm=norm_specs(config),
        query=linear_specs(config, "D", "KGH"),
        key=linear_specs(config, "D", "KH"),
        first=bias_spec(config, "tKG", t=2) if options.reset else None,
        buckets=weight_spec(config, "rKG", r=options.buckets) if options.relative else None,
    )


def prepare(call: LayerCall[Tupe, UntiedPositions, None], context: AttentionContext) -> ProjectedPositions:
    """See `ProjectedPositions`."""
    positions = context.positions
    rows = norm(call.config, call.params.norm, lookup(call.params.table, positions)).astype(call.config.dtype)
    queries, keys = linear(call.params.query, "BTD,DKGH->BTKGH", rows), linear(call.params.key, "BTD,DKH->BTKH", rows)
    is_first = positions == 0
    if call.options.reset:
        queries = jnp.where(is_first[:, :, None, None, None], 0, queries)
        keys = jnp.where(is_first[:, :, None, None], 0, keys)
    starts = context.length + positions.shape[1] - 1 - replicate_length(positions)[:, -1:]
    buckets = (
        None
        if call.params.buckets is None
        else T5Bias(call.params.buckets, not context.causal, call.options.max_distance)
    )
    return ProjectedPositions(
        queries, keys, UntiedBias(call.params.first, buckets, is_first, replicate_length(is_first), starts)
    )


def score(
    call: LayerCall[Tupe, None, ProjectedPositions], q: Array, k: Array, projections: Attention
) -> tuple[Array, Array, ScoreBias]:
    """Queries and keys with positions behind contents, [...,2 H], and the bias."""
    prepared = call.prepared
    return jnp.concatenate([q, prepared.queries], -1), jnp.concatenate([k, prepared.keys], -1), prepared.bias


POSITION = Position(shared_specs=shared_specs, prepare=prepare, score=score)
