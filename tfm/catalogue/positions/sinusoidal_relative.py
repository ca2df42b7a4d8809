"""Sines and cosines of clipped distances, added to keys and to values (NEZHA: Wei et al. 2019, section 2.1)."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from tfm.attention.project import Attention
from tfm.catalogue.options.positions.relative import SinusoidalRelative
from tfm.catalogue.positions.relative import RelativeBias
from tfm.catalogue.positions.shaw import DistanceTables, table_bias
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Position
from tfm.positions.sinusoidal import sinusoidal


def prepare(
    params: Any, options: SinusoidalRelative, config: Config, context: AttentionContext
) -> tuple[DistanceTables, bool]:
    """The tables of all layers, and whether later keys do not matter."""
    distances = jnp.arange(-options.max_distance, options.max_distance + 1)
    table = sinusoidal(distances[None], config.sizes["H"])[0]
    return DistanceTables(table, table if options.values else None), context.causal


def score(call: LayerCall, q: Array, k: Array, projections: Attention) -> tuple[Array, Array, RelativeBias]:
    """Queries and keys as they are, and the bias."""
    return q, k, table_bias(q, *call.prepared)


POSITION = Position(prepare=prepare, score=score)
