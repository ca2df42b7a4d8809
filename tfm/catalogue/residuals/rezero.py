"""ReZero: x + alpha f(x), alpha a trained number for each block that starts at 0, and no norm (Bachlechner et al. 2021,
eq. 4)."""

from flax import struct
from jax import Array

from tfm.catalogue.options.residuals import ReZero
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Residual
from tfm.ops import broadcast_param
from tfm.params import bias_spec
from tfm.residuals import Outputs, Sublayers, branch


@struct.dataclass
class Gate:
    """The number [] that all sublayers of a block share."""

    alpha: Array


def specs(options: ReZero, config: Config, names: tuple[str, ...]) -> Gate:
    """One number a block, 0 at first: the whole stack is then the identity."""
    return Gate(bias_spec(config, ""))


def chain(call: LayerCall[ReZero, Gate, None], x: Array, sublayers: Sublayers) -> tuple[Array, Outputs]:
    """x [B,T,D] -> [B,T,D]."""
    outputs = {}
    for name, sublayer in sublayers.items():
        y, outputs[name] = branch(sublayer, call.config, x, x)
        x = x + broadcast_param(call.params.alpha, y) * y
    return x, outputs


RESIDUAL = Residual(specs, chain, final_norm=False)
