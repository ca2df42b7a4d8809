"""x + norm(f(x)): what a sublayer adds is normalized (Swin V2: Liu et al. 2022, section 3.2)."""

from jax import Array

from tfm.catalogue.options.residuals import ResPostNorm
from tfm.interfaces import LayerCall, Residual
from tfm.norms import norm
from tfm.residuals import Norms, Outputs, Sublayer, SublayerOutput, Sublayers, branch, norms_specs


def chain(call: LayerCall[ResPostNorm, Norms, None], x: Array, sublayers: Sublayers) -> tuple[Array, Outputs]:
    """x [B,T,D] -> [B,T,D]."""
    outputs = {}
    for name, sublayer in sublayers.items():

        def normalized(read: Array, name: str = name, sublayer: Sublayer = sublayer) -> tuple[Array, SublayerOutput]:
            y, output = sublayer.function(read)
            return norm(call.config, getattr(call.params, name), y), output

        y, outputs[name] = branch(sublayer._replace(function=normalized), call.config, x, x)
        x = x + y
    return x, outputs


RESIDUAL = Residual(norms_specs, chain, final_norm=True)
