"""Models of images at another size than they were trained at (Dosovitskiy et al. 2021, section 3.2)."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tfm.catalogue.models.object_queries import ObjectDetector
from tfm.catalogue.options.inputs import Merging, Patches
from tfm.catalogue.positions.grid import offsets
from tfm.config.model import Config
from tfm.models.encoder import Encoder, encoder_specs
from tfm.params import PyTree, Spec
from tfm.sharding import replicate

# The axes of tables of positions: vectors of places, and biases of offsets, of one layer, of all, or of L layers.
TABLES = ("PD", "PU", "OKG", "LOKG")

# The parameter of the cubic convolution with which torch resizes (Keys 1981, eq. 15).
SLOPE = -0.75


def interpolate_positions(config: Config, params: PyTree, size: int | tuple[int, int]) -> tuple[Config, PyTree]:
    """The configuration and the parameters of a model for images of another size in pixels, or of (height, width).

    Vectors of positions are interpolated along rows and columns, bicubically; so are biases of offsets in a grid, or in
    windows whose side changes with it. Those of vectors before the patches stay. Of a model of texts and images, the
    tower of images is changed.
    Raises ValueError where the patches do not divide the size, or other parameters depend on how many there are.
    """
    if config.images is not None:
        tower, image = interpolate_positions(config.in_images(), params.image, size)
        patches: Any = tower.input
        return replace(config, images=replace(config.images, input=patches)), replace(params, image=image)
    if isinstance(params, ObjectDetector):  # its queries read no grid
        new_config, images = interpolate_positions(config, params.encoder, size)
        return new_config, replace(params, encoder=images)
    height, width = (size, size) if isinstance(size, int) else size
    if config.input.grid is None:
        raise ValueError(f"input={config.input.name} has no rows and columns to interpolate between; try input=patches")
    options: Any = config.input
    new_config = replace(config, input=replace(options, size=height, image_width=None if width == height else width))

    def with_new_size(node: PyTree) -> PyTree:
        return _resized_encoder(node, config, new_config) if isinstance(node, Encoder) else node

    return new_config, jax.tree.map(with_new_size, params, is_leaf=lambda node: isinstance(node, Encoder))


def _resized_encoder(model: Encoder, config: Config, new_config: Config) -> Encoder:
    """The encoder of another configuration, stage by stage."""
    inputs = ([stage.input for stage in shape.stage_configs] for shape in (config, new_config))
    trees = (
        [replace(stage, stages=()) for stage in tree.all_stages.values()]
        for tree in (encoder_specs(config), encoder_specs(new_config), model)
    )
    first, *stages = (
        jax.tree.map(partial(_resized, options, new_options), *stage)
        for options, new_options, *stage in zip(*inputs, *trees, strict=True)
    )
    return replace(first, stages=tuple(stages))


def _resized(
    options: Patches | Merging, new_options: Patches | Merging, spec: Spec, new_spec: Spec, leaf: Array
) -> Array:
    """A parameter of a stage that reads `options`, in the shape of `new_spec`. Raises ValueError unless it is a table
    of positions."""
    if spec.shape == new_spec.shape:
        return leaf
    axis = int(spec.axes.startswith("L"))
    if spec.axes not in TABLES or spec.shape[axis + 1 :] != new_spec.shape[axis + 1 :]:
        raise ValueError(
            f"a parameter of shape {list(spec.shape)} depends on how many patches there are, and only positions "
            "can be interpolated; train a model for the new size"
        )
    leaf = replicate(leaf)
    if "O" not in spec.axes:
        return resize_table(leaf, options.prefix, options.grid, new_options.grid)
    sides, new_sides = _offset_sides(options, spec.shape[axis]), _offset_sides(new_options, new_spec.shape[axis])
    last = spec.shape[axis] - math.prod(sides)  # biases of the vectors before the patches
    resize = partial(resize_table, prefix=last, grid=sides, new_grid=new_sides)
    tables = jnp.roll(leaf, last, axis)
    return jnp.roll(jax.vmap(resize)(tables) if axis else resize(tables), -last, axis)


def _offset_sides(options: Patches | Merging, count: int) -> tuple[int, int]:
    """Offsets of rows and of columns in a table of a given size: in the whole grid, or in square windows."""
    rows, columns = options.grid
    if count == offsets(rows, columns, options.prefix):
        return 2 * rows - 1, 2 * columns - 1
    return math.isqrt(count), math.isqrt(count)


def resize_table(table: Array, prefix: int, grid: tuple[int, int], new_grid: tuple[int, int]) -> Array:
    """table [P,...] of `prefix` rows and then a row for each place of a grid -> the same for another grid."""
    rows, columns = (jnp.asarray(cubic(*sizes), jnp.float32) for sizes in zip(grid, new_grid, strict=True))
    places = table[prefix:].astype(jnp.float32).reshape(*grid, -1)
    places = jnp.einsum("Rr,rcD,Cc->RCD", rows, places, columns, precision="highest")
    return jnp.concatenate([table[:prefix], places.reshape(-1, *table.shape[1:]).astype(table.dtype)])


def cubic(size: int, new_size: int) -> np.ndarray:
    """The matrix [new_size, size] of cubic convolution between the centres of pixels; those at an edge are repeated.

    Source: Keys 1981, eq. 15; as torch's `interpolate(mode="bicubic", align_corners=False)`.
    """
    matrix = np.zeros((new_size, size))
    for row in range(new_size):
        centre = (row + 0.5) * size / new_size - 0.5
        first = int(np.floor(centre)) - 1
        for pixel in range(first, first + 4):
            matrix[row, min(max(pixel, 0), size - 1)] += _weight(abs(centre - pixel))
    return matrix


def _weight(distance: float) -> float:
    """The weight of a pixel at a distance of at most 2."""
    if distance <= 1:
        return ((SLOPE + 2) * distance - (SLOPE + 3)) * distance**2 + 1
    return SLOPE * (((distance - 5) * distance + 8) * distance - 4)
