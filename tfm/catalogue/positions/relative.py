"""Score biases of queries and vectors of distances."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.typing import DTypeLike

from tfm.attention.bias import ScoreBias
from tfm.catalogue.positions.distances import distances, on_query_shards, skew, unskew
from tfm.ops import lookup


@struct.dataclass
class RelativeBias(ScoreBias):
    """Scores q_i a_(j-i) with a vector a of each distance; a subclass says which.

    queries: [B,T,K,G,H], divided by the root of H
    causal: later keys do not matter, and the last query is at the position of the last key
    """

    queries: Any
    causal: bool = struct.field(pytree_node=False)

    blockwise = False
    batched = False

    def key_vectors(self, distance: Array, dtype: DTypeLike) -> Array:
        """int32 [R] -> the vectors of these distances in a dtype, [R,H] or, by key/value head, [R,K,H]."""
        raise NotImplementedError

    def value_vectors(self, distance: Array, dtype: DTypeLike) -> Array | None:
        """int32 [R] -> the vectors [R,H] that are added to values at these distances; None for most."""
        return None

    def __call__(self, i, j):
        is_causal = self.is_causal(i, j)

        def scores(queries, bias, j, i):
            vectors = bias.key_vectors(distances(i, j, is_causal), queries.dtype)
            equation = "BTKGH,RH->BKGTR" if vectors.ndim == 2 else "BTKGH,RKH->BKGTR"
            return skew(jnp.einsum(equation, queries, vectors, preferred_element_type=jnp.float32), j.shape[1])

        axes = "BTKGH", "", "", "BT", "BKGTS"
        return on_query_shards(scores, axes, self.queries, replace(self, queries=None), j, i)

    def values(self, weights, i, j):
        is_causal, dtype = self.is_causal(i, j), self.queries.dtype

        def weighted_sum(weights, bias, j, i):
            distance = distances(i, j, is_causal)
            if is_causal:  # a query without keys has weights everywhere
                weights = jnp.where((j[:, None, :] <= i[:, :, None])[:, None, None], weights, 0)
            vectors = bias.value_vectors(distance, dtype)
            return jnp.einsum("BKGTR,RH->BTKGH", unskew(weights.astype(dtype), len(distance)), vectors)

        if not self.adds_values:
            return None
        axes = "BKGTS", "", "", "BT", "BTKGH"
        return on_query_shards(weighted_sum, axes, weights, replace(self, queries=None), j, i)

    def for_keys(self, keys):
        return replace(self, causal=False)

    def for_queries(self, start, count):
        return replace(self, queries=jax.lax.dynamic_slice_in_dim(self.queries, start, count, axis=1), causal=False)

    def is_causal(self, i: Array, j: Array) -> bool:
        """Whether distances of later keys may be left out: the queries i [1,T] are the last of the keys j [1,S]."""
        return self.causal and i.shape[1] <= j.shape[1]

    @property
    def adds_values(self) -> bool:
        """Whether `values` returns an array."""
        return type(self).value_vectors is not RelativeBias.value_vectors


@struct.dataclass
class ClippedBias(RelativeBias):
    """Vectors of distances up to the middle row of a table [r,H]; longer distances share the outer rows."""

    key_table: Array

    def key_vectors(self, distance, dtype):
        return rows_of(self.key_table, distance).astype(dtype)


def rows_of(table: Array, distance: Array) -> Array:
    """float32 rows of table [r,...] for distances int32 [R]; the middle row is for 0, the outer ones are for all longer
    distances."""
    span = len(table) // 2
    return lookup(table, jnp.clip(distance, -span, span)[None] + span)[0]
