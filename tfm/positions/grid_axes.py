"""Places of patches in an image."""

import jax.numpy as jnp
from jax import Array

from tfm.config.model import Config


def places(config: Config, positions: Array) -> Array:
    """positions int32 [B,T] in the sequence -> int32 [B,T,2], row and column of each patch; -1 for the vectors before
    the patches, such as [CLS], which have no place."""
    _, columns = config.input.grid or (1, 1)
    patch = positions - config.input.prefix
    return jnp.where(patch[..., None] < 0, -1, jnp.stack([patch // columns, patch % columns], axis=-1))
