"""Trained vectors of clipped distances, added to keys and to values (Shaw et al. 2018).

With tables a and b of 2 k + 1 rows, shared by the heads of a layer, and d the distance j - i, clipped to [-k, k]
(eq. 3 to 5): the score of query i and key j is q_i (k_j + a_d) / sqrt(H), and query i sums w_ij (v_j + b_d).
"""

from flax import struct
from jax import Array

from tfm.attention.project import Attention
from tfm.catalogue.options.positions.relative import Shaw
from tfm.catalogue.positions.relative import ClippedBias, RelativeBias, rows_of
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Position
from tfm.params import weight_spec


@struct.dataclass
class DistanceTables:
    """Vectors of distances [r,H] for keys and for values; None where values have none."""

    keys: Array
    values: Array | None


@struct.dataclass
class KeyValueBias(ClippedBias):
    """A bias by clipped distances that also adds a vector to values (Shaw et al. 2018, eq. 3)."""

    value_table: Array

    def value_vectors(self, distance, dtype):
        return rows_of(self.value_table, distance).astype(dtype)


def specs(options: Shaw, config: Config) -> DistanceTables:
    """The tables of one layer."""
    table = weight_spec(config, "rH", r=2 * options.max_distance + 1)
    return DistanceTables(table, table if options.values else None)


def prepare(call: LayerCall[Shaw, None, None], context: AttentionContext) -> bool:
    """Whether later keys do not matter."""
    return context.causal


def score(
    call: LayerCall[Shaw, DistanceTables, bool], q: Array, k: Array, projections: Attention
) -> tuple[Array, Array, RelativeBias]:
    """Queries and keys as they are, and the bias."""
    return q, k, table_bias(q, call.params, call.prepared)


def table_bias(q: Array, tables: DistanceTables, causal: bool) -> RelativeBias:
    """The bias of queries [B,T,K,G,H] for tables of clipped distances."""
    queries = q * q.shape[-1] ** -0.5
    if tables.values is None:
        return ClippedBias(queries, causal, tables.keys)
    return KeyValueBias(queries, causal, tables.keys, tables.values)


POSITION = Position(specs=specs, prepare=prepare, score=score)
