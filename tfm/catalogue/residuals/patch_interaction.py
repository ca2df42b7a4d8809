"""x + f(norm(x)) for each sublayer f, and behind the mixer x + local(norm(x)): two depth-wise convolutions over the
grid of patches (XCiT: El-Nouby et al. 2021, section 3.3, "local patch interaction").

The norm between the convolutions is that of the model; the paper has a batch norm there.
"""

from dataclasses import replace

import jax
from flax import struct
from jax import Array

from tfm.catalogue.grid import convolve
from tfm.catalogue.options.residuals import PatchInteraction
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Residual
from tfm.norms import Norm, norm, norm_specs
from tfm.ops import broadcast_param
from tfm.params import bias_spec, constant_spec, weight_spec
from tfm.residuals import Norms, Outputs, Sublayers, branch, norms_specs, scaled, scales


@struct.dataclass
class LocalConvolution:
    """The norm before a convolution of each channel, its weights [h,w,D] and its bias [D]."""

    norm: Norm
    weights: Array
    bias: Array


@struct.dataclass
class PatchInteractionParams:
    """The norms of the sublayers, both convolutions, and the vector [D] that scales what these add; None: 1."""

    norms: Norms
    first: LocalConvolution
    second: LocalConvolution
    scale: Array | None


def specs(options: PatchInteraction, config: Config, names: tuple[str, ...]) -> PatchInteractionParams:
    """A norm for each sublayer, and two convolutions."""
    start, side = options.layer_scale, options.kernel
    weights = weight_spec(config, "hwD", inputs=2, h=side, w=side)
    convolution = LocalConvolution(norm_specs(config), weights, bias_spec(config, "D"))
    norms = replace(norms_specs(options, config, names), scales=scales(start, config, names))
    scale = None if start is None else constant_spec(config, "D", start)
    return PatchInteractionParams(norms, convolution, convolution, scale)


def chain(
    call: LayerCall[PatchInteraction, PatchInteractionParams, None], x: Array, sublayers: Sublayers
) -> tuple[Array, Outputs]:
    """x [B,T,D] -> [B,T,D]."""
    params, config, outputs = call.params, call.config, {}
    for name, sublayer in sublayers.items():
        y, outputs[name] = branch(sublayer, config, norm(config, getattr(params.norms, name), x), x)
        x = x + scaled(params.norms, name, y)
        if name == "mixer":
            y = _convolved(params.second, config, jax.nn.gelu(_convolved(params.first, config, x), approximate=False))
            x = x + (y if params.scale is None else broadcast_param(params.scale, y) * y)
    return x, outputs


def _convolved(layer: LocalConvolution, config: Config, x: Array) -> Array:
    """x [B,T,D] of a grid, normalized -> [B,T,D]."""
    y = norm(config, layer.norm, x)
    y = convolve(layer.weights, y, config.grid or (1, 1))
    return y + broadcast_param(layer.bias, y)


RESIDUAL = Residual(specs, chain, final_norm=True)
