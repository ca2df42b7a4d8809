"""Cosines of queries and keys, and a bias that a small network computes of the offset in a window (Swin V2: Liu et al.
2022, sections 3.2 and 3.3).

Scores are cos(q, k) times a trained number of each head, at most 100, plus 16 sigmoid(network(offset)). An offset of d
rows or columns in a window of side w is read as sign(d) log(1 + 8 |d| / (w - 1)) / log(8), so that windows of another
side have offsets of nearly the same range.
"""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.attention.project import Attention
from tfm.catalogue.options.positions.grid import SwinV2
from tfm.catalogue.positions.grid import GridBias
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Position
from tfm.ops import Linear, linear, linear_specs, unit_vectors
from tfm.params import ArraySpec, constant, scale_spec
from tfm.sharding import unshard_fsdp

# Cosines are multiplied by 10 at first, and by 100 at most; biases are between 0 and 16.
FIRST_SCALE, LARGEST_SCALE, LARGEST_BIAS = 10.0, 100.0, 16.0


@struct.dataclass
class ContinuousBias:
    """The logarithm of the scale of each head [K,G], and the maps of an offset [2] to hidden units and to heads."""

    log_scale: Array
    up: Linear
    down: Linear


def specs(options: SwinV2, config: Config) -> ContinuousBias:
    """The spec tree of one layer."""
    log_scale: ArraySpec = replace(scale_spec(config, "KG"), init=constant(math.log(FIRST_SCALE)))
    return ContinuousBias(
        log_scale=log_scale,
        up=linear_specs(config, "o", "m", bias=True, o=2, m=options.hidden),
        down=linear_specs(config, "m", "KG", bias=False, m=options.hidden),
    )


def score(
    call: LayerCall[SwinV2, ContinuousBias, None], q: Array, k: Array, projections: Attention
) -> tuple[Array, Array, GridBias]:
    """q [B,T,K,G,H] and k [B,T,K,H] of windows -> what has the cosines as scaled products, and the bias; float32."""
    layer, side = call.params, call.options.side(call.config)
    scale = jnp.exp(jnp.minimum(unshard_fsdp(layer.log_scale).astype(jnp.float32), math.log(LARGEST_SCALE)))
    scale = (scale * q.shape[-1] ** 0.5)[None, None, :, :, None]
    hidden = jax.nn.relu(linear(layer.up, "po,om->pm", jnp.asarray(offsets(side, call.options.trained_window))))
    table = LARGEST_BIAS * jax.nn.sigmoid(linear(layer.down, "pm,mKG->pKG", hidden))
    return (unit_vectors(q) * scale).astype(q.dtype), unit_vectors(k).astype(k.dtype), GridBias(table, side, side)


def offsets(side: int, trained_window: int | None = None) -> np.ndarray:
    """float32 [r,2]: the offsets of `GridBias.offset` in rows and columns, on the logarithmic scale."""
    steps = np.arange(1 - side, side) * 8 / max((trained_window or side) - 1, 1)
    steps = np.sign(steps) * np.log1p(np.abs(steps)) / math.log(8)
    return np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2).astype(np.float32)


POSITION = Position(specs=specs, score=score)
