"""f(x) or x + f(x) of the mixer alone: layers of a recurrent network (Hermans & Schrauwen 2013; Peters et al. 2018)."""

from typing import Any

from jax import Array

from tfm.catalogue.options.residuals import MixerOnly
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Residual, Sublayers
from tfm.residuals import branch


def specs(options: MixerOnly, config: Config, names: tuple[str, ...]) -> None:
    """Nothing is trained."""


def chain(call: LayerCall[MixerOnly, None, None], x: Array, sublayers: Sublayers) -> tuple[Array, dict[str, Any]]:
    """x [B,T,D] -> [B,T,D]."""
    outputs = {}
    for name, sublayer in sublayers.items():
        y, outputs[name] = branch(sublayer, call.config, x, x)
        x = x + y if call.options.skip else y
    return x, outputs


RESIDUAL = Residual(specs, chain, final_norm=False, sublayers=("mixer", "cross"))
