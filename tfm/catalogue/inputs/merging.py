"""Squares of states of a grid, merged into single ones (Swin: Liu et al. 2021, section 3.1, "patch merging")."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.catalogue.grid import as_grid, as_sequence, squares
from tfm.catalogue.options.inputs import Merging
from tfm.config.model import Config
from tfm.interfaces import Input, LayerCall
from tfm.norms import Norm, norm, norm_specs
from tfm.ops import Linear, linear, linear_specs
from tfm.sharding import shard_patches


@struct.dataclass
class Merge:
    """The map [s,D] of the states of a square, column by column, and the norm before or behind it."""

    projection: Linear
    norm: Norm


def specs(options: Merging, config: Config) -> Merge:
    """The spec tree of the map and the norm."""
    size = options.kernel**2 * options.width
    axis = {"first": "w", "merged": "s", "last": "D"}[options.norm]
    return Merge(
        projection=linear_specs(config, "s", "D", bias=options.bias, s=size),
        norm=norm_specs(config, axis, s=size, w=options.width),
    )


def embed(
    call: LayerCall[Merging, Merge, None],
    states: Array,
    positions: Array | None = None,
    types: Array | None = None,
) -> Array:
    """states [B,S,W] of a grid, row by row -> [B,T,D] of the grid with half as many rows and columns, rounded up.

    Raises ValueError for another number or width of states.
    """
    params, options, config = call.params, call.options, call.config
    if states.shape[1:] != (options.rows * options.columns, options.width):
        grid = f"[B,{options.rows * options.columns},{options.width}] of {options.rows} x {options.columns} places"
        raise ValueError(
            f"states must have the shape {grid}, not {list(states.shape)}; merge those of the stage before"
        )
    x = states if options.norm != "first" else norm(config, params.norm, states)
    shifts = squares(as_grid(x, options.rows, options.columns), options.kernel, 2)
    x = jnp.concatenate([shift for column in zip(*shifts, strict=True) for shift in column], axis=-1)
    x = x if options.norm != "merged" else norm(config, params.norm, x)
    x = as_sequence(x)
    x = linear(params.projection, "BTs,sD->BTD", x)
    return shard_patches(x if options.norm != "last" else norm(config, params.norm, x))


INPUT = Input(specs, embed)
