"""DeepNorm: norm(alpha x + f(x)), the branches starting beta times Xavier's size (Wang et al. 2022, figure 2).

layers                                        alpha                  beta
N of an encoder, or of a decoder alone        (2 N)^(1/4)            (8 N)^(-1/4)
N of the encoder of M layers of a decoder     0.81 (N^4 M)^(1/16)    0.87 (N^4 M)^(-1/16)
M of a decoder with cross-attention           (3 M)^(1/4)            (12 M)^(-1/4)
"""

from jax import Array

from tfm.catalogue.options.residuals import DeepNorm
from tfm.catalogue.residuals.unnormalized import xavier_branches
from tfm.config.model import Config
from tfm.interfaces import Block, LayerCall, Residual
from tfm.norms import norm
from tfm.params import PyTree
from tfm.residuals import Norms, Outputs, Sublayers, branch, norms_specs


def revise(options: DeepNorm, config: Config, specs: PyTree) -> PyTree:
    """The specs of a block; embeddings stay."""
    if not isinstance(specs, Block):
        return specs
    beta = ((8 if specs.cross is None else 12) * config.layers) ** -0.25
    return xavier_branches(specs, beta if options.beta is None else options.beta)


def chain(call: LayerCall[DeepNorm, Norms, None], x: Array, sublayers: Sublayers) -> tuple[Array, Outputs]:
    """x [B,T,D] -> [B,T,D]."""
    alpha = ((3 if "cross" in sublayers else 2) * call.config.layers) ** 0.25
    alpha, outputs = alpha if call.options.alpha is None else call.options.alpha, {}
    for name, sublayer in sublayers.items():
        y, outputs[name] = branch(sublayer, call.config, x, x)
        x = norm(call.config, getattr(call.params, name), alpha * x + y)
    return x, outputs


RESIDUAL = Residual(norms_specs, chain, final_norm=False, revise=revise)
