"""Places of patches in an image."""

import math

import jax.numpy as jnp
from jax import Array

from tfm.config.model import Config


def places(config: Config, positions: Array) -> Array:
    """positions int32 [B,T] in the sequence -> int32 [B,T,2], row and column of each patch; -1 for the vectors before
    the patches, such as [CLS], which have no place."""
    _, columns = config.input.grid or (1, 1)
    patch = positions - config.input.prefix
    return jnp.where(patch[..., None] < 0, -1, jnp.stack([patch // columns, patch % columns], axis=-1))


def rows_columns(config: Config, positions: Array) -> Array:
    """positions int32 [B,T] -> int32 [B,T,2]: the places of patches; 0 for what has none."""
    return jnp.maximum(places(config, positions), 0)


def centres(config: Config, positions: Array) -> Array:
    """positions int32 [B,T] -> float32 [B,T,2]: the centres of patches, from -2 pi to 2 pi along each side of the
    image; 0 for what has no place."""
    place, grid = places(config, positions), config.input.grid or (1, 1)
    shares = [2 * (place[..., axis].astype(jnp.float32) + 0.5) / side - 1 for axis, side in enumerate(grid)]
    return jnp.where(place < 0, 0.0, 2 * math.pi * jnp.stack(shares, axis=-1))
