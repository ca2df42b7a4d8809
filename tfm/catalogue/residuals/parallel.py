"""x + mixer(norm(x)) + feed_forward(norm(x)): all sublayers read the same (Wang & Komatsuzaki 2021)."""

from dataclasses import replace

from jax import Array

from tfm.catalogue.options.residuals import Parallel
from tfm.config.model import Config
from tfm.interfaces import LayerCall, Residual
from tfm.norms import norm
from tfm.residuals import Norms, Outputs, Sublayers, branch, norms_specs, scaled, scales


def specs(options: Parallel, config: Config, names: tuple[str, ...]) -> Norms:
    """A norm for each sublayer, and perhaps a scale."""
    return replace(norms_specs(options, config, names), scales=scales(options.layer_scale, config, names))


def chain(call: LayerCall[Parallel, Norms, None], x: Array, sublayers: Sublayers) -> tuple[Array, Outputs]:
    """x [B,T,D] -> [B,T,D]."""
    read, outputs = x, {}
    for name, sublayer in sublayers.items():
        y, outputs[name] = branch(sublayer, call.config, norm(call.config, getattr(call.params, name), read), x)
        x = x + scaled(call.params, name, y)
    return x, outputs


RESIDUAL = Residual(specs, chain, final_norm=True)
