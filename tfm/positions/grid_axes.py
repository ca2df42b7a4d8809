"""Places of patches in an image, and of tubes in a video."""

import math

import jax.numpy as jnp
from jax import Array

from tfm.config.model import Config


def places(config: Config, positions: Array) -> Array:
    """positions int32 [B,T] in the sequence -> int32 [B,T,A], the place along each axis: row and column of a patch, of
    a tube its time before these; -1 for the vectors before the patches, such as [CLS], which have no place."""
    patch = positions - config.input.prefix
    by_axis, rest = [], patch
    for side in reversed(_axes(config)[1:]):
        by_axis.append(rest % side)
        rest = rest // side
    return jnp.where(patch[..., None] < 0, -1, jnp.stack([rest, *reversed(by_axis)], axis=-1))


def first_places(config: Config, positions: Array) -> Array:
    """positions int32 [B,T] -> int32 [B,T,A]: the places; 0 for what has none."""
    return jnp.maximum(places(config, positions), 0)


def centres(config: Config, positions: Array) -> Array:
    """positions int32 [B,T] -> float32 [B,T,A]: the centres of patches, from -2 pi to 2 pi along each side of the
    image, or of the video; 0 for what has no place."""
    place = places(config, positions)
    shares = [2 * (place[..., axis].astype(jnp.float32) + 0.5) / side - 1 for axis, side in enumerate(_axes(config))]
    return jnp.where(place < 0, 0.0, 2 * math.pi * jnp.stack(shares, axis=-1))


def _axes(config: Config) -> tuple[int, ...]:
    return config.input.axes or (1, 1)
