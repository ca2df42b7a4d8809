"""Sines and cosines of the position (Vaswani et al. 2017, section 3.5)."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from tfm.config.model import Config
from tfm.config.positions import Sinusoidal
from tfm.positions import Position


def sinusoidal(positions: Array, width: int, order: str = "interleaved") -> Array:
    """positions [B,T] -> float32 [B,T,width], of wavelengths from 2 pi to 10,000 * 2 pi.

    `order` interleaved: sines in even columns and cosines in odd ones; halves: all sines first.
    """
    wavelengths = 10_000.0 ** (jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    angles = positions[..., None].astype(jnp.float32) / wavelengths[None, None]
    waves = jnp.sin(angles), jnp.cos(angles)
    if order == "halves":
        return jnp.concatenate(waves, axis=-1)[..., :width]
    return jnp.stack(waves, axis=-1).reshape(*positions.shape, -1)[..., :width]


def embed(params: Any, options: Sinusoidal, config: Config, positions: Array) -> Array:
    """positions [B,T] -> float32 [B,T,U]."""
    return sinusoidal(positions, config.sizes["U"], options.order)


POSITION = Position(embed=embed)
