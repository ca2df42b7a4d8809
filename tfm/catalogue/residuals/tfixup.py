"""T-Fixup: x + f(x) without norms; branches and embeddings start smaller in deeper models (Huang et al. 2020,
section 3.2).

Linear maps start as Xavier's, and embeddings from N(0, 1/D). Then, with N layers, these are scaled:

    embeddings, and values, outputs and feed-forward layers of a decoder with cross-attention   (9 N)^(-1/4)
    values, outputs and feed-forward layers of an encoder, or of a decoder alone                0.67 N^(-1/4)
"""

from dataclasses import replace
from typing import Any

import jax

from tfm.catalogue.options.residuals import TFixup
from tfm.config.model import Config
from tfm.interfaces import Residual, no_parameters
from tfm.ops import Linear
from tfm.params import normal, xavier
from tfm.residuals import sums, xavier_branches


def rescale(options: TFixup, config: Config, specs: Any) -> Any:
    """The specs of a block."""
    scale = 0.67 * config.layers**-0.25 if specs.cross is None else (9 * config.layers) ** -0.25
    return xavier_branches(specs, scale)


def rescale_embed(options: TFixup, config: Config, specs: Any) -> Any:
    """The specs of the embeddings: tables and vectors are scaled, linear maps are not."""
    scale = (9 * config.layers) ** -0.25

    def start(node: Any) -> Any:
        if isinstance(node, Linear):
            spec: Any = node.kernel
            kernel: Any = xavier(spec)
            return replace(node, kernel=kernel)
        return normal(node, scale * node.shape[-1] ** -0.5) if len(node.axes) > 1 else node

    return jax.tree.map(start, specs, is_leaf=lambda node: isinstance(node, Linear))


RESIDUAL = Residual(no_parameters, sums, final_norm=False, rescale=rescale, rescale_embed=rescale_embed)
