"""Positions in rows: the vectors of a row and of a column of positions, beside one another (Kitaev et al. 2020, as
published; Ho et al. 2019 for images).

Two small tables say where a token of a very long text stands.
"""

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.catalogue.options.positions.absolute import Axial
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Position
from tfm.ops import lookup
from tfm.params import weight_spec


@struct.dataclass
class AxialTables:
    """The vectors [r,u] of rows and [c,w] of columns; u and w together are the width of the embeddings."""

    rows: Array
    columns: Array


def embed_specs(options: Axial, config: Config) -> AxialTables:
    """What embeddings need."""
    row_width, column_width = options.widths(config.sizes[config.embed_axis])
    return AxialTables(
        rows=weight_spec(config, "ru", r=options.rows, u=row_width),
        columns=weight_spec(config, "cw", c=options.columns, w=column_width),
    )


def embed(call: LayerCall[Axial, AxialTables, None], x: Array, positions: Array) -> Array:
    """x [B,T,U] with the vectors of positions [B,T]: of row p // columns and column p % columns."""
    rows = lookup(call.params.rows, positions // call.options.columns)
    return x + jnp.concatenate([rows, lookup(call.params.columns, positions % call.options.columns)], axis=-1)


POSITION = Position(embed_specs, embed)
