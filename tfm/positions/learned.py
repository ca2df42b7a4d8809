"""A trained vector for each position (Devlin et al. 2018)."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.sharding import reshard

from tfm.config.model import Config
from tfm.config.positions import Learned
from tfm.ops import lookup
from tfm.params import weight_spec
from tfm.positions import Position
from tfm.positions.sinusoidal import sinusoidal


def embed_specs(options: Any, config: Config) -> Any:
    """The table [P,U].

    It starts as sinusoids with the variance of other weights: relative positions can be read off it from the first
    step (M33: accuracy 0.161 against 0.155).
    """

    def init(key, shape, sharding):
        waves = config.init_std * 2**0.5 * sinusoidal(jnp.arange(shape[0])[None], shape[1])[0]
        return waves if sharding is None else reshard(waves, sharding)

    return dataclasses.replace(weight_spec(config, "P" + config.embed_axis), init=init)


def embed(table: Array, options: Learned, config: Config, positions: Array) -> Array:
    """positions [B,T] -> float32 rows [B,T,U] of the table."""
    return lookup(table, positions)


POSITION = Position(embed_specs=embed_specs, embed=embed)
