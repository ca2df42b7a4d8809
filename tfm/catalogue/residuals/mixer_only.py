"""f(x) or x + f(x) of the mixer alone: layers of a recurrent network (Hermans & Schrauwen 2013; Peters et al. 2018)."""

from dataclasses import replace

from jax import Array

from tfm.catalogue.options.residuals import MixerOnly
from tfm.config.model import Config
from tfm.interfaces import Block, LayerCall, Residual, no_parameters
from tfm.params import PyTree
from tfm.residuals import Outputs, Sublayers, branch


def chain(call: LayerCall[MixerOnly, None, None], x: Array, sublayers: Sublayers) -> tuple[Array, Outputs]:
    """x [B,T,D] -> [B,T,D]."""
    outputs = {}
    for name, sublayer in sublayers.items():
        y, outputs[name] = branch(sublayer, call.config, x, x)
        x = x + y if call.options.skip else y
    return x, outputs


def revise(options: MixerOnly, config: Config, specs: PyTree) -> PyTree:
    """The specs of a block without a feed-forward layer; embeddings stay."""
    return replace(specs, feed_forward=None) if isinstance(specs, Block) else specs


RESIDUAL = Residual(no_parameters, chain, final_norm=False, revise=revise)
