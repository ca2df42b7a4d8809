"""DT-Fixup: x + f(x) without norms; branches start smaller where the embeddings of a batch are larger (Xu et al. 2021,
section 3).

Linear maps start as Xavier's. With N layers, and the largest norm m of the embedding of a token, values, outputs and
feed-forward layers are then divided by sqrt(N (4 m^2 + 2 m + 2)). The paper takes m over all texts.
"""

from typing import Any

import jax
import jax.numpy as jnp

from tfm.catalogue.options.residuals import DTFixup
from tfm.config.model import Config
from tfm.interfaces import Profile, Residual, no_parameters
from tfm.residuals import sums, xavier_branches


def rescale(options: DTFixup, config: Config, specs: Any) -> Any:
    """The specs of a block."""
    return xavier_branches(specs)


def calibrate(blocks: list[Any], options: DTFixup, config: Config, profile: Profile) -> list[Any]:
    """The blocks, their branches scaled by the largest norm [] of an embedding of the batch, in float32."""
    norm = jnp.sqrt(jnp.square(profile.x.astype(jnp.float32)).sum(-1).max())
    scale = (config.layers * (4 * norm**2 + 2 * norm + 2)) ** -0.5

    def scaled(spec, leaf):
        return leaf * scale.astype(leaf.dtype) if spec.branch else leaf

    return [jax.tree.map(scaled, specs, block) for specs, block in zip(profile.specs, blocks, strict=True)]


RESIDUAL = Residual(no_parameters, sums, final_norm=False, rescale=rescale, calibrate=calibrate)
