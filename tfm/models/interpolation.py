"""Models of images at another size than they were trained at (Dosovitskiy et al. 2021, section 3.2)."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tfm.config.model import Config
from tfm.models.encoder import Encoder, encoder_specs
from tfm.params import Spec

# The parameter of the cubic convolution with which torch resizes (Keys 1981, eq. 15).
SLOPE = -0.75


def interpolate_positions(config: Config, params: Any, size: int | tuple[int, int]) -> tuple[Config, Any]:
    """The configuration and the parameters of a model for images of another size in pixels, or of (height, width).

    Tables of positions are interpolated along rows and columns, bicubically; vectors before the patches keep theirs. Of
    a model of texts and images, the tower of images is changed.
    Raises ValueError where the patches do not divide the size, or other parameters depend on how many there are.
    """
    if config.images is not None:
        tower, image = interpolate_positions(config.in_images(), params.image, size)
        patches: Any = tower.input
        return replace(config, images=replace(config.images, input=patches)), replace(params, image=image)
    height, width = (size, size) if isinstance(size, int) else size
    if config.input.grid is None:
        raise ValueError(f"input={config.input.name} has no rows and columns to interpolate between; try input=patches")
    options: Any = config.input
    new_config = replace(config, input=replace(options, size=height, image_width=None if width == height else width))
    specs, new_specs = encoder_specs(config), encoder_specs(new_config)

    def resized(spec: Spec, new_spec: Spec, leaf: Array) -> Array:
        if spec.shape == new_spec.shape:
            return leaf
        if spec.axes[0] != "P" or spec.shape[1:] != new_spec.shape[1:]:
            raise ValueError(
                f"a parameter of shape {list(spec.shape)} depends on how many patches there are, and only positions "
                "can be interpolated; train a model for the new size"
            )
        return resize_table(leaf, config.input.prefix, options.grid, new_config.input.grid)

    def with_new_size(node: Any) -> Any:
        return jax.tree.map(resized, specs, new_specs, node) if isinstance(node, Encoder) else node

    return new_config, jax.tree.map(with_new_size, params, is_leaf=lambda node: isinstance(node, Encoder))


def resize_table(table: Array, prefix: int, grid: tuple[int, int], new_grid: Any) -> Array:
    """table [P,D] of `prefix` rows and then a row for each patch of a grid -> the same for another grid."""
    rows, columns = (jnp.asarray(cubic(*sizes), jnp.float32) for sizes in zip(grid, new_grid, strict=True))
    patches = table[prefix:].astype(jnp.float32).reshape(*grid, -1)
    patches = jnp.einsum("Rr,rcD,Cc->RCD", rows, patches, columns, precision="highest")
    return jnp.concatenate([table[:prefix], patches.reshape(-1, table.shape[1]).astype(table.dtype)])


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
