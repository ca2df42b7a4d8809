"""Sines and cosines of row and column in every layer, whose wavelengths are those of the picture, not of its patches
(DETR: Carion et al. 2020, appendix A.4, and its code: places count from 1, and the last one is a whole turn)."""

import math

import jax.numpy as jnp
from jax import Array

from tfm.catalogue.options.positions.grid import Detr
from tfm.interfaces import AttentionContext, LayerCall, Position
from tfm.positions.absolute import score_at, sinusoidal
from tfm.positions.grid_axes import places

# Added to the count of rows, and of columns.
_EPS = 1e-6


def prepare(call: LayerCall[Detr, None, None], context: AttentionContext) -> Array:
    """float32 waves [B,T,D] for all layers: the first half tells rows, the second half columns; zeros for vectors that
    have no place."""
    place = places(call.config, context.positions)
    sides = call.config.input.axes or (1, 1)
    waves = [
        sinusoidal((place[..., axis] + 1).astype(jnp.float32) * (2 * math.pi / (side + _EPS)), call.config.width // 2)
        for axis, side in enumerate(sides)
    ]
    return jnp.where(place[..., :1] < 0, 0.0, jnp.concatenate(waves, axis=-1))


POSITION = Position(prepare=prepare, score=score_at)
