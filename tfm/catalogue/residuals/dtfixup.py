"""DT-Fixup: x + f(x) without norms; branches start smaller where the embeddings of a batch are larger (Xu et al. 2021,
section 3).

Linear maps start as Xavier's. With N layers, and the largest norm m of the embedding of a token, values, outputs and
feed-forward layers are then divided by sqrt(N (4 m^2 + 2 m + 2)). The paper takes m over all texts.
"""

import jax
import jax.numpy as jnp

from tfm.catalogue.options.residuals import DTFixup
from tfm.catalogue.residuals.profile import Profile
from tfm.catalogue.residuals.unnormalized import sums, xavier_branches
from tfm.config.model import Config
from tfm.interfaces import Block, Residual, no_parameters
from tfm.params import PyTree


def revise(options: DTFixup, config: Config, specs: PyTree) -> PyTree:
    """The specs of a block; embeddings stay."""
    return xavier_branches(specs) if isinstance(specs, Block) else specs


def calibrate(options: DTFixup, config: Config, blocks: list[Block], profile: Profile) -> list[Block]:
    """The blocks, their branches scaled by the largest norm [] of an embedding of the batch, in float32."""
    norm = jnp.sqrt(jnp.square(profile.x.astype(jnp.float32)).sum(-1).max())
    scale = (config.layers * (4 * norm**2 + 2 * norm + 2)) ** -0.5

    def scaled(spec, leaf):
        return leaf * scale.astype(leaf.dtype) if spec.branch else leaf

    return [jax.tree.map(scaled, specs, block) for specs, block in zip(profile.specs, blocks, strict=True)]


RESIDUAL = Residual(no_parameters, sums, final_norm=False, revise=revise)
