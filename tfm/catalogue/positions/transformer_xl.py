"""Relative positions of Transformer-XL: sines and cosines of distances, and two global queries (Dai et al. 2019).

With r the sines and cosines of i - j, W their projection in this layer, and u and v of all layers, the score of query i
and key j is (section 3.3)

    ((q_i + u) k_j + (q_i + v) W r) / sqrt(H)
"""

from typing import NamedTuple

from flax import struct
from jax import Array

from tfm.attention.project import Attention
from tfm.catalogue.options.positions.relative import TransformerXL
from tfm.catalogue.positions.relative import RelativeBias
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Position
from tfm.ops import Linear, broadcast_param, linear, linear_specs
from tfm.params import weight_spec
from tfm.positions.absolute import sinusoidal


@struct.dataclass
class GlobalQueries:
    """u and v [K,G,H]: what every query asks of contents and of distances."""

    content: Array
    distance: Array


class SharedQueries(NamedTuple):
    """The queries of all layers, and whether later keys do not matter."""

    queries: GlobalQueries
    causal: bool


@struct.dataclass
class TransformerXLBias(RelativeBias):
    """Projected sines and cosines of distances."""

    projection: Linear
    width: int = struct.field(pytree_node=False)

    def key_vectors(self, distance, dtype):
        waves = sinusoidal(-distance[None], self.width, "halves").astype(dtype)
        return linear(self.projection, "BRD,DKH->BRKH", waves)[0]


def shared_specs(options: TransformerXL, config: Config) -> GlobalQueries:
    """The queries of all layers."""
    return GlobalQueries(weight_spec(config, "KGH", inputs=0), weight_spec(config, "KGH", inputs=0))


def specs(options: TransformerXL, config: Config) -> Linear:
    """The projection of one layer."""
    return linear_specs(config, "D", "KH", bias=False)


def prepare(call: LayerCall[TransformerXL, GlobalQueries, None], context: AttentionContext) -> SharedQueries:
    """See `SharedQueries`."""
    return SharedQueries(call.params, context.causal)


def score(
    call: LayerCall[TransformerXL, Linear, SharedQueries], q: Array, k: Array, projections: Attention
) -> tuple[Array, Array, TransformerXLBias]:
    """Queries of contents, keys as they are, and the bias."""
    queries, causal = call.prepared
    to_distances = (q + broadcast_param(queries.distance, q)) * q.shape[-1] ** -0.5
    bias = TransformerXLBias(to_distances, causal, call.params, call.config.width)
    return q + broadcast_param(queries.content, q), k, bias


POSITION = Position(shared_specs=shared_specs, specs=specs, prepare=prepare, score=score)
