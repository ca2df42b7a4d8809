"""Squares of states of a grid, merged into single ones (Swin: Liu et al. 2021, section 3.1, "patch merging")."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.catalogue.grid import as_grid, as_sequence, squares
from tfm.catalogue.inputs.patches import with_positions, with_vectors
from tfm.catalogue.options.inputs import Merging
from tfm.config.model import Config
from tfm.interfaces import Input, LayerCall
from tfm.norms import Norm, norm, norm_specs
from tfm.ops import Linear, dropout, linear, linear_specs
from tfm.params import PyTree, vector_spec
from tfm.sharding import reshape_rows, shard_patches
from tfm.tables.positions import POSITIONS


@struct.dataclass
class Merge:
    """The map [w,h,c,D] of the states of a square, column by column, the norm before or behind it, what positions need,
    and the vector [D] before the states.

    None where a stage lacks one.
    """

    projection: Linear
    norm: Norm
    positions: PyTree
    cls: Array | None


def specs(options: Merging, config: Config) -> Merge:
    """The spec tree of the map, the norm and the vectors."""
    side, width = options.kernel, options.width
    axis = {"first": "c", "merged": "s", "last": "D"}[options.norm]
    positions = POSITIONS[config.position.name].embed_specs(config.position, config) if options.positions else None
    return Merge(
        projection=linear_specs(config, "whc", "D", bias=options.bias, w=side, h=side, c=width),
        norm=norm_specs(config, axis, s=side**2 * width, c=width),
        positions=positions,
        cls=vector_spec(config, "D") if options.cls else None,
    )


def embed(
    call: LayerCall[Merging, Merge, None],
    states: Array,
    positions: Array | None = None,
    types: Array | None = None,
) -> Array:
    """states [B,S,W] of a grid, row by row -> [B,T,D] of the grid that has 1 / stride of the rows and columns, rounded
    up; [CLS], if any, stands first.

    Raises ValueError for another number or width of states.
    """
    params, options, config = call.params, call.options, call.config
    if states.shape[1:] != (options.rows * options.columns, options.width):
        grid = f"[B,{options.rows * options.columns},{options.width}] of {options.rows} x {options.columns} places"
        raise ValueError(
            f"states must have the shape {grid}, not {list(states.shape)}; merge those of the stage before"
        )
    x = states if options.norm != "first" else norm(config, params.norm, states)
    shifts = squares(as_grid(x, options.rows, options.columns), options.kernel, options.stride)
    x = jnp.concatenate([shift for column in zip(*shifts, strict=True) for shift in column], axis=-1)
    x = x if options.norm != "merged" else norm(config, params.norm, x)
    x = reshape_rows(as_sequence(x), len(x), x.shape[1] * x.shape[2], options.kernel, options.kernel, options.width)
    x = linear(params.projection, "BTwhc,whcD->BTD", x)
    x = x if options.norm != "last" else norm(config, params.norm, x)
    x = shard_patches(x) if params.cls is None else with_vectors([params.cls], x)
    if not options.positions:
        return x
    x = with_positions(config, params.positions, x.astype(jnp.float32), positions)
    return dropout(x, config.dropout, call.key).astype(config.dtype)


INPUT = Input(specs, embed)
