"""A trained bias for each offset of rows and columns in a window, and head (Swin: Liu et al. 2021, eq. 4)."""

from typing import Any

from jax import Array

from tfm.attention.context import LayerCall
from tfm.attention.project import Attention
from tfm.config.model import Config
from tfm.config.positions import Swin
from tfm.params import weight_spec
from tfm.positions import Position
from tfm.positions.grid import WindowBias


def specs(options: Swin, config: Config) -> Any:
    """The table [r,K,G] of one layer."""
    return weight_spec(config, "rKG", r=(2 * options.side(config) - 1) ** 2)


def score(call: LayerCall, q: Array, k: Array, projections: Attention) -> tuple[Array, Array, WindowBias]:
    """Queries and keys of windows as they are, and the bias."""
    return q, k, WindowBias(call.params, call.options.side(call.config))


POSITION = Position(specs=specs, score=score)
