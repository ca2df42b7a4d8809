"""Inputs: from what a model reads to vectors. One file an input, named like its tag in `tfm.config.inputs`."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.sharding import named_sharding, positions_like, spec_of


@struct.dataclass
class MaskedPixels:
    """Images of which some patches are masked (BEiT: Bao et al. 2021, section 2.3): an encoder reads them as it reads
    pixels.

    pixels: float [B,H,W,C]
    masked: bool [B,P], True for a patch that is not seen, row by row
    """

    pixels: Array
    masked: Array


def default_positions(x: Array) -> Array:
    """x [B,T,...] -> 0..T-1 in every row."""
    shape, spec = x.shape[:2], spec_of(x)[:2]
    return jnp.broadcast_to(positions_like(x), shape, out_sharding=named_sharding(x, x, *spec))
