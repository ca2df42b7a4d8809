"""Numbers and vectors of distances that multiply queries and keys (Huang et al. 2020, section 3.2).

With d the distance j - i, clipped, the score of query i and key j is, divided by the root of H,

    method 1    (q_i k_j) a_|d|             a number of each head
    method 2    (q_i k_j) a_d
    method 3    sum of q_i k_j a_d          element by element, a vector of all heads
    method 4    q_i k_j + q_i a_d + k_j a_d

Method 3 multiplies every pair with a vector: its time is that of plain attention, without matrix products.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.attention.project import Attention
from tfm.catalogue.options.positions.relative import Huang
from tfm.catalogue.positions.distances import distances, on_query_shards, skew, toeplitz
from tfm.catalogue.positions.relative import ClippedBias, rows_of
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Position
from tfm.ops import lookup
from tfm.params import ArraySpec, scale_spec, weight_spec
from tfm.sharding import replicate_length


@struct.dataclass
class NumberBias(ScoreBias):
    """Methods 1 and 2: scores times a number of the distance, of the table [r,K,G] of a layer; `signed`: the middle row
    is for 0, otherwise the first."""

    table: Array
    signed: bool = struct.field(pytree_node=False)

    def apply(self, scores, i, j):
        def numbers(table, j, i):
            distance = distances(i, j)
            sizes = jnp.minimum(jnp.abs(distance), len(table) - 1)
            rows = rows_of(table, distance) if self.signed else lookup(table, sizes[None])[0]
            return toeplitz(rows, i.shape[1], j.shape[1])[None]

        return scores * on_query_shards(numbers, ("", "", "BT", "BKGTS"), self.table, j, i)


@struct.dataclass
class VectorBias(ScoreBias):
    """Method 3: scores are computed anew, a query at a time, so that no array has all pairs and elements."""

    queries: Array
    keys: Array
    table: Array

    blockwise = False

    def apply(self, scores, i, j):
        def products(queries, keys, table, j, i):
            count, length = j.shape[1], i.shape[1]
            rows = rows_of(table, distances(i, j)).astype(queries.dtype)

            @jax.checkpoint
            def of_query(inputs):
                index, q = inputs
                vectors = jax.lax.dynamic_slice_in_dim(rows, length - 1 - index, count)
                scaled = keys * vectors[None, :, None, :]
                return jnp.einsum("BKGH,BSKH->BKGS", q, scaled, preferred_element_type=jnp.float32)

            by_query = jax.lax.map(of_query, (jnp.arange(length), jnp.moveaxis(queries, 1, 0)))
            return jnp.moveaxis(by_query, 0, 3)

        axes = "BTKGH", "", "", "", "BT", "BKGTS"
        return on_query_shards(products, axes, self.queries, self.keys, self.table, j, i)

    def for_keys(self, keys):
        return replace(self, keys=keys)

    def for_queries(self, start, count):
        return replace(self, queries=jax.lax.dynamic_slice_in_dim(self.queries, start, count, axis=1))


@struct.dataclass
class SumBias(ClippedBias):
    """Method 4: what queries and what keys [B,S,K,H] say to a vector of their distance."""

    keys: Array

    def __call__(self, i, j):
        def of_keys(keys, table, j, i):
            vectors = rows_of(table, -distances(j, i)).astype(keys.dtype)
            x = jnp.einsum("BSKH,RH->BKSR", keys, vectors, preferred_element_type=jnp.float32)
            return skew(x, i.shape[1]).swapaxes(-1, -2)[:, :, None]

        axes = "", "", "", "BT", "BKGTS"
        return super().__call__(i, j) + on_query_shards(of_keys, axes, self.keys, self.key_table, j, i)

    def for_keys(self, keys):
        return replace(self, keys=keys * keys.shape[-1] ** -0.5, causal=False)


def specs(options: Huang, config: Config) -> ArraySpec:
    """The table of one layer: vectors [r,H], or numbers [r,K,G]. What multiplies starts at 1, where it knows no
    positions."""
    rows = options.max_distance + 1 if options.method == 1 else 2 * options.max_distance + 1
    if options.method == 4:
        return weight_spec(config, "rH", r=rows)
    return scale_spec(config, "rH" if options.method == 3 else "rKG", r=rows)


def prepare(call: LayerCall[Huang, None, None], context: AttentionContext) -> bool:
    """Whether later keys do not matter."""
    return context.causal


def score(
    call: LayerCall[Huang, Array, bool], q: Array, k: Array, projections: Attention
) -> tuple[Array, Array, ScoreBias]:
    """Queries and keys as they are, and the bias."""
    method, scale = call.options.method, q.shape[-1] ** -0.5
    if method < 3:
        return q, k, NumberBias(call.params, method == 2)
    keys = replicate_length(k)
    if method == 3:
        return q, k, VectorBias(q * scale, keys, call.params)
    return q, k, SumBias(q * scale, call.prepared, call.params, keys * scale)


POSITION = Position(specs=specs, prepare=prepare, score=score)
