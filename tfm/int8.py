"""Kernels in eight bits: a leaf that stands for a kernel, as `LowRank` does. `tfm.ops` alone looks into it."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

# The largest value: the range is symmetric, and -128 stays unused.
LARGEST = 127


@struct.dataclass
class Int8:
    """The kernel values * scale.

    values: int8 [inputs, outputs], with L in front where layers are stacked
    scale: float32, the same axes, of size 1 but for L and channels: the outputs of a kernel, the rows of a table

    Source: Jacob et al. 2018, eq. 1, with zero point 0; one scale a channel (Krishnamoorthi 2018, section 2.1).
    """

    values: Any
    scale: Any

    @property
    def kernel(self) -> Array:
        """The kernel, float32."""
        return self.values.astype(jnp.float32) * self.scale


def quantize(kernel: Array, summed: tuple[int, ...]) -> Int8:
    """A kernel, and its axes that have no scale of their own -> its nearest values; errors are at most half a step."""
    kernel = kernel.astype(jnp.float32)
    scale = jnp.abs(kernel).max(summed, keepdims=True) / LARGEST
    steps = kernel / jnp.where(scale > 0, scale, 1)
    return Int8(jnp.round(steps).astype(jnp.int8), scale)


def side_of_channels(equation: str, scale: Array) -> str:
    """Which letters of an equation have scales: "inputs" of the product, "outputs", or "both"."""
    operands, output = equation.split("->")
    channels = [letter for letter, size in zip(operands.split(",")[1], scale.shape, strict=True) if size > 1]
    if all(letter in output for letter in channels):
        return "outputs"
    return "both" if any(letter in output for letter in channels) else "inputs"


def scale_for(letters: str, right: str, scale: Array) -> Array:
    """A scale with the letters `right` as a factor of an array with these letters."""
    kept = [letter for letter in letters if letter in right]
    order = [right.index(letter) for letter in kept]
    rest = [axis for axis in range(len(right)) if axis not in order]
    factor = jax.lax.squeeze(jnp.transpose(scale, (*order, *rest)), tuple(range(len(order), len(right))))
    return jnp.expand_dims(factor, [axis for axis, letter in enumerate(letters) if letter not in right])
