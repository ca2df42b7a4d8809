"""A trained bias for each offset of rows and columns in a window, and head (Swin: Liu et al. 2021, eq. 4)."""

from jax import Array

from tfm.attention.project import Attention
from tfm.catalogue.options.positions.grid import Swin
from tfm.catalogue.positions.grid import GridBias, offsets
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Position
from tfm.params import ArraySpec, weight_spec


def specs(options: Swin, config: Config) -> ArraySpec:
    """The table [O,K,G] of one layer."""
    side = options.side(config)
    return weight_spec(config, "OKG", O=offsets(side, side))


def score(
    call: LayerCall[Swin, Array, None], q: Array, k: Array, projections: Attention
) -> tuple[Array, Array, GridBias]:
    """Queries and keys of windows as they are, and the bias."""
    side = call.options.side(call.config)
    return q, k, GridBias(call.params, side, side)


POSITION = Position(specs=specs, score=score)
