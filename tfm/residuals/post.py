"""norm(x + f(x)), as in the first Transformer and BERT (Vaswani et al. 2017, section 3.1)."""

from typing import Any

from jax import Array

from tfm.config.model import Config
from tfm.config.residuals import PostNorm
from tfm.interfaces import LayerCall, Residual, Sublayers
from tfm.norms import norm
from tfm.residuals import Norms, branch, sublayer_norms


def specs(options: PostNorm, config: Config, names: tuple[str, ...]) -> Norms:
    """A norm for each sublayer."""
    return sublayer_norms(config, names)


def chain(call: LayerCall[PostNorm, Norms, None], x: Array, sublayers: Sublayers) -> tuple[Array, dict[str, Any]]:
    """x [B,T,D] -> [B,T,D]."""
    outputs = {}
    for name, sublayer in sublayers.items():
        y, outputs[name] = branch(sublayer, call.config, x, x)
        x = norm(call.config, getattr(call.params, name), x + y)
    return x, outputs


RESIDUAL = Residual(specs, chain, final_norm=False)
