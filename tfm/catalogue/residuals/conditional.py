"""x + convolution(x), then x + f(norm(x)), for each sublayer f: its neighbours tell a patch where it stands (Chu et al.
2021, section 3.2; DaViT: Ding et al. 2022, in code)."""

from flax import struct
from jax import Array

from tfm.catalogue.grid import DepthwiseConvolution, convolve, depthwise_specs
from tfm.catalogue.options.residuals import Conditional
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Residual
from tfm.norms import norm
from tfm.ops import broadcast_param
from tfm.residuals import Norms, Outputs, Sublayers, branch, norms_specs


@struct.dataclass
class ConditionalNorms:
    """The norm of each sublayer, and by the name of a sublayer the convolution before it."""

    norms: Norms
    convolutions: dict[str, DepthwiseConvolution]


def specs(options: Conditional, config: Config, names: tuple[str, ...]) -> ConditionalNorms:
    """A norm and a convolution for each sublayer."""
    convolution = depthwise_specs(config, "D", options.kernel)
    return ConditionalNorms(norms_specs(options, config, names), dict.fromkeys(names, convolution))


def chain(
    call: LayerCall[Conditional, ConditionalNorms, None], x: Array, sublayers: Sublayers
) -> tuple[Array, Outputs]:
    """x [B,T,D] -> [B,T,D]."""
    outputs = {}
    for name, sublayer in sublayers.items():
        convolution = call.params.convolutions[name]
        x = x + convolve(convolution.weights, x, call.config.grid or (1, 1)) + broadcast_param(convolution.bias, x)
        y, outputs[name] = branch(sublayer, call.config, norm(call.config, getattr(call.params.norms, name), x), x)
        x = x + y
    return x, outputs


RESIDUAL = Residual(specs, chain, final_norm=True)
