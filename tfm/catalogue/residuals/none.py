"""No residual connection: norm(f(x)), what claims on residual connections are held against (Dong et al. 2021)."""

from jax import Array

from tfm.catalogue.options.residuals import NoResidual
from tfm.interfaces import LayerCall, Residual
from tfm.norms import norm
from tfm.residuals import Norms, Outputs, Sublayers, branch, norms_specs


def chain(call: LayerCall[NoResidual, Norms, None], x: Array, sublayers: Sublayers) -> tuple[Array, Outputs]:
    """x [B,T,D] -> [B,T,D]: norm(f(x)) for each sublayer f."""
    outputs = {}
    for name, sublayer in sublayers.items():
        y, outputs[name] = branch(sublayer, call.config, x, x)
        x = norm(call.config, getattr(call.params, name), y)
    return x, outputs


RESIDUAL = Residual(norms_specs, chain, final_norm=False)
