"""T-Fixup: x + f(x) without norms; branches and embeddings start smaller in deeper models (Huang et al. 2020,
section 3.2).

Linear maps start as Xavier's, and embeddings from N(0, 1/D). Then, with N layers, these are scaled:

    embeddings, and values, outputs and feed-forward layers of a decoder with cross-attention   (9 N)^(-1/4)
    values, outputs and feed-forward layers of an encoder, or of a decoder alone                0.67 N^(-1/4)
"""

from dataclasses import replace

import jax

from tfm.catalogue.options.residuals import TFixup
from tfm.catalogue.residuals.unnormalized import sums, xavier_branches
from tfm.config.model import Config
from tfm.interfaces import Block, Residual, no_parameters
from tfm.ops import Linear
from tfm.params import ArraySpec, PyTree, normal, xavier


def revise(options: TFixup, config: Config, specs: PyTree) -> PyTree:
    """The specs of a block; of embeddings, whose tables and vectors are scaled, and linear maps are not."""
    of_embeddings = (9 * config.layers) ** -0.25
    if isinstance(specs, Block):
        return xavier_branches(specs, 0.67 * config.layers**-0.25 if specs.cross is None else of_embeddings)

    def start(node: PyTree) -> PyTree:
        if isinstance(node, Linear):
            spec: ArraySpec = node.kernel
            kernel: ArraySpec = xavier(spec)
            return replace(node, kernel=kernel)
        return normal(node, of_embeddings * node.shape[-1] ** -0.5) if len(node.axes) > 1 else node

    return jax.tree.map(start, specs, is_leaf=lambda node: isinstance(node, Linear))


RESIDUAL = Residual(no_parameters, sums, final_norm=False, revise=revise)
