"""Kernels in eight bits: a leaf that stands for a kernel, as `LowRank` does. `tfm.ops` alone looks into it."""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

# The largest value: the range is symmetric, and -128 stays unused.
LARGEST = 127


@struct.dataclass
class Int8:
    """The kernel values * scale.

    values: int8 [outputs, inputs], with L in front where layers are stacked; of a table [V, inputs]
    scale: float32, the same axes, of size 1 but for L and channels: the outputs of a kernel, the rows of a table
    summed: the axes of the kernel [inputs, outputs] that stand last in values, counted from its end

    Products read the inputs of a channel one after the other, so they lie together. Source: Jacob et al. 2018, eq. 1,
    with zero point 0; one scale a channel (Krishnamoorthi 2018, section 2.1).
    """

    values: Array
    scale: Array
    summed: tuple[int, ...] = struct.field(pytree_node=False)

    @property
    def kernel(self) -> Array:
        """The kernel [inputs, outputs], float32."""
        last = tuple(range(-len(self.summed), 0))
        return jnp.moveaxis(self.values.astype(jnp.float32) * self.scale, last, self.summed)

    def letters(self, kernel: str) -> str:
        """The letters of the axes of values, from those of the kernel."""
        summed = [kernel[axis] for axis in self.summed]
        return "".join([letter for letter in kernel if letter not in summed] + summed)


def quantize(kernel: Array, summed: tuple[int, ...]) -> Int8:
    """A kernel, and its axes that have no scale of their own -> its nearest values; errors are at most half a step."""
    values, scale = rounded(kernel, summed)
    last = tuple(range(-len(summed), 0))
    values, scale = (jnp.moveaxis(array, summed, last) for array in (values, scale))
    return Int8(values, scale, tuple(axis - kernel.ndim for axis in summed))  # type: ignore[call-arg]


def rounded(x: Array, summed: tuple[int, ...]) -> tuple[Array, Array]:
    """Values int8, and their scale float32 with size 1 in the axes that are to be summed; a scale that is not finite
    says that x is not."""
    x = x.astype(jnp.float32)
    scale = jnp.abs(x).max(summed, keepdims=True) / LARGEST
    return jnp.round(x / jnp.where(scale > 0, scale, 1)).astype(jnp.int8), scale


def side_of_channels(letters: str, output: str, scale: Array) -> str:
    """Which letters of a product have scales: "inputs", "outputs", or "both"."""
    channels = [letter for letter, size in zip(letters, scale.shape, strict=True) if size > 1]
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
