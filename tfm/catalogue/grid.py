"""Grids of places: squares of neighbours that become one place, and sums over neighbours."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, refuse
from tfm.ops import einsum
from tfm.params import bias_spec, weight_spec
from tfm.scopes import SUMS
from tfm.sharding import named_sharding, replicate_length, reshape_rows, shard_axis, spec_of, unshard_fsdp


@struct.dataclass
class DepthwiseConvolution:
    """The weights of the places of a square [h,w,D], and a bias [D]; the last axis may be another one."""

    weights: Array
    bias: Array


def depthwise_specs(config: Config, axis: str, side: int) -> DepthwiseConvolution:
    """The spec tree of a convolution of each channel of `axis` over side x side places."""
    weights = weight_spec(config, f"hw{axis}", inputs=2, h=side, w=side)
    return DepthwiseConvolution(weights, bias_spec(config, axis))


def check_whole(call: LayerCall, context: AttentionContext) -> None:
    """Raises VariantError for a mask, for a decoder, and for tokens that fill no grid."""
    if context.causal or context.mask is not None:
        refuse(call.options, "is for encoders of images, all of which are read in full", "leave out the mask")
    (rows, columns), length = call.config.input.grid or (0, 0), context.positions.shape[1]
    if length != call.config.input.prefix + rows * columns:
        grid = f"a grid of {rows} x {columns} patches"
        refuse(call.options, f"reads {grid}, and there are {length} tokens", "read images of input.size")


def as_grid(x: Array, rows: int, columns: int) -> Array:
    """x [B,T,D] of the T places of a grid, row by row -> [B,rows,columns,D]."""
    x = replicate_length(x)
    return _reshape(x, len(x), rows, columns, x.shape[-1])


def as_sequence(x: Array) -> Array:
    """x [B,rows,columns,D] -> [B,T,D], row by row."""
    return _reshape(x, len(x), x.shape[1] * x.shape[2], x.shape[-1])


def _reshape(x: Array, *shape: int) -> Array:
    """x [B,...,D] in another shape, its first and last axes sharded as they are and the others not at all."""
    batch, *_, width = spec_of(x)
    return jnp.reshape(x, shape, out_sharding=named_sharding(x, x, batch, *(None,) * (len(shape) - 2), width))


def coarser(size: int, stride: int) -> int:
    """How many squares begin along a side of a grid, where every `stride`-th place begins one."""
    return -(-size // stride)


def squares(x: Array, kernel: int, stride: int) -> list[list[Array]]:
    """x [B,R,C,D] -> for each row and column of a square of kernel x kernel places, what it reads [B,r,c,D].

    A square begins at every `stride`-th place; one that is larger than that begins half its side earlier. Beyond the
    grid there are zeros.
    """
    before = kernel // 2 if kernel > stride else 0
    sides = [coarser(size, stride) for size in x.shape[1:3]]
    ends = [
        max(0, stride * (count - 1) + kernel - before - size) for count, size in zip(sides, x.shape[1:3], strict=True)
    ]
    x = jnp.pad(x, ((0, 0), *((before, end) for end in ends), (0, 0)))
    rows, columns = (stride * (count - 1) + 1 for count in sides)
    return [
        [x[:, row : row + rows : stride, column : column + columns : stride] for column in range(kernel)]
        for row in range(kernel)
    ]


def stacked_squares(x: Array, kernel: int, stride: int) -> Array:
    """x [B,R,C,D] -> [B,T,h,w,D]: the `squares` of kernel x kernel places around those of a coarser grid, row by
    row."""
    x = jnp.stack([jnp.stack(row, axis=3) for row in squares(x, kernel, stride)], axis=3)
    return reshape_rows(x, len(x), x.shape[1] * x.shape[2], *x.shape[3:])


def weighted_squares(weights: Array, x: Array, stride: int) -> Array:
    """x [B,R,C,c], weights [h,w,c,d] -> [B,r,c,d]: weighted sums over h x w places, at every `stride`-th one."""
    rows, columns = (coarser(size, stride) for size in x.shape[1:3])
    y = einsum("BThwc,hwcd->BTd", stacked_squares(x, len(weights), stride), weights)
    return as_grid(y, rows, columns)


def largest_neighbours(x: Array) -> Array:
    """x [B,R,C,c], none of it negative -> [B,r,c,c]: the maximum over 3 x 3 places, at every second one."""
    return jnp.stack([shift for row in squares(x, 3, 2) for shift in row]).max(0)


@jax.named_scope(SUMS)
@partial(jax.checkpoint, static_argnums=(2,))  # the backward pass reads x, not each of its shifts
def depthwise(kernel: Array, x: Array, grid: tuple[int, int]) -> Array:
    """x [B,T,D] of a grid, kernel [h,w,D] -> [B,T,D]: every channel a weighted sum over its h x w nearest places.

    Zeros lie beyond the grid; the sum is in float32, the result in the dtype of x.
    """
    weights = unshard_fsdp(kernel).astype(jnp.float32)
    total = jnp.zeros((), jnp.float32)
    for row, shifts in enumerate(squares(as_grid(x, *grid), len(kernel), 1)):
        for column, shift in enumerate(shifts):
            total = total + weights[row, column][None, None, None] * shift.astype(jnp.float32)
    return as_sequence(total.astype(x.dtype))


def convolve(kernel: Array, x: Array, grid: tuple[int, int]) -> Array:
    """`depthwise`, its places sharded as those of x."""
    return shard_axis(depthwise(kernel, x, grid), spec_of(x)[1])
