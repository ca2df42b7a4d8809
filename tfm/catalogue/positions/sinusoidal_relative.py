"""Sines and cosines of clipped distances, added to keys and to values (NEZHA: Wei et al. 2019, section 2.1)."""

import jax.numpy as jnp
from jax import Array

from tfm.attention.project import Attention
from tfm.catalogue.options.positions.relative import SinusoidalRelative
from tfm.catalogue.positions.relative import RelativeBias
from tfm.catalogue.positions.shaw import DistanceTables, table_bias
from tfm.interfaces import AttentionContext, LayerCall, Position
from tfm.positions.absolute import sinusoidal


def prepare(call: LayerCall[SinusoidalRelative, None, None], context: AttentionContext) -> tuple[DistanceTables, bool]:
    """The tables of all layers, and whether later keys do not matter."""
    distances = jnp.arange(-call.options.max_distance, call.options.max_distance + 1)
    table = sinusoidal(distances[None], call.config.sizes["H"])[0]
    return DistanceTables(table, table if call.options.values else None), context.causal


def score(
    call: LayerCall[SinusoidalRelative, None, tuple[DistanceTables, bool]], q: Array, k: Array, projections: Attention
) -> tuple[Array, Array, RelativeBias]:
    """Queries and keys as they are, and the bias."""
    return q, k, table_bias(q, *call.prepared)


POSITION = Position(prepare=prepare, score=score)
