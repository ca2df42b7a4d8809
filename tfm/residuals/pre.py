"""x + f(norm(x)), as in GPT-2 and most models since (Xiong et al. 2020)."""

from dataclasses import replace
from typing import Any

from jax import Array

from tfm.config.model import Config
from tfm.config.residuals import PreNorm
from tfm.interfaces import LayerCall, Residual, Sublayers
from tfm.norms import norm
from tfm.residuals import Norms, branch, scaled, scales, sublayer_norms


def specs(options: PreNorm, config: Config, names: tuple[str, ...]) -> Norms:
    """A norm for each sublayer, perhaps not for the mixer, and perhaps a scale."""
    norms = sublayer_norms(config, tuple(name for name in names if options.mixer_norm or name != "mixer"))
    return replace(norms, scales=scales(options.layer_scale, config, names))


def chain(call: LayerCall[PreNorm, Norms, None], x: Array, sublayers: Sublayers) -> tuple[Array, dict[str, Any]]:
    """x [B,T,D] -> [B,T,D]."""
    outputs = {}
    for name, sublayer in sublayers.items():
        params = getattr(call.params, name)
        y, outputs[name] = branch(sublayer, call.config, x if params is None else norm(call.config, params, x), x)
        x = x + scaled(call.params, name, y)
    return x, outputs


RESIDUAL = Residual(specs, chain, final_norm=True)
