"""Moments of an optimizer in eight bits, blockwise as Dettmers et al. 2022 ("8-bit optimizers via block-wise
quantization"), but with magnitudes that are equally far apart in their logarithm, and rounded at random.

A row is the last axis of an array. Magnitudes are its largest one times 2^(-n/4), n < 127: neighbours differ by 19 %,
and the smallest is 2^-31 of the largest. What is not 0 becomes no 0: a second moment divides.
"""

import jax.numpy as jnp
from flax import struct
from jax import Array

LEVELS, PER_OCTAVE = 127, 4


@struct.dataclass
class EightBits:
    """codes: int8 [...,D], a sign times a level of 1 to 127, or 0; largest: float32 [...,1], the magnitude of 127."""

    codes: Array
    largest: Array


def is_eight_bits(node) -> bool:
    """Whether a node of a tree is such an array."""
    return isinstance(node, EightBits)


def encode(x: Array, chance: Array) -> EightBits:
    """float32 [...,D] -> its codes. `chance` [...,D] is uniform in [0, 1): magnitudes are right on average."""
    largest = jnp.abs(x).max(-1, keepdims=True)
    share = jnp.abs(x) / jnp.where(largest > 0, largest, 1)
    exact = LEVELS + PER_OCTAVE * jnp.log2(jnp.where(share > 0, share, 1))
    below = jnp.floor(exact)
    ratio = 2 ** (1 / PER_OCTAVE)
    level = below + (chance * (ratio - 1) < jnp.exp2((exact - below) / PER_OCTAVE) - 1)
    codes = jnp.where(share > 0, jnp.clip(level, 1, LEVELS), 0) * jnp.sign(x)
    return EightBits(codes.astype(jnp.int8), largest)


def decode(x: EightBits) -> Array:
    """Codes -> float32 [...,D]."""
    level = jnp.abs(x.codes.astype(jnp.float32))
    magnitude = x.largest * jnp.exp2((level - LEVELS) / PER_OCTAVE)
    return jnp.where(level > 0, magnitude, 0) * jnp.sign(x.codes).astype(jnp.float32)
