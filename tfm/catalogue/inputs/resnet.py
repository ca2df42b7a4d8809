"""Images as the last grid of a convolutional network: residual blocks of group norm, ReLU and convolutions with
standardized weights (BiT: Kolesnikov et al. 2020, section 3.2; the order in a block: He et al. 2016b, figure 4e)."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.catalogue.grid import largest_neighbours, weighted_squares
from tfm.catalogue.inputs.patches import contents, embed_network
from tfm.catalogue.options.pictures import SIDES, ResNet
from tfm.config.model import Config
from tfm.inputs import MaskedPixels
from tfm.interfaces import Input, LayerCall
from tfm.low_rank import kernel_of
from tfm.norms import Norm, norm_specs
from tfm.ops import Linear, broadcast_param, linear_specs
from tfm.params import ArraySpec, PyTree, bias_spec, scale_spec, vector_spec, weight_spec
from tfm.sharding import reshape_rows, unshard_fsdp
from tfm.tables.positions import POSITIONS

# What is added to the variance of a group of channels, and to that of the weights behind an output.
GROUP_EPS, WEIGHT_EPS = 1e-5, 1e-8


@struct.dataclass
class NormedConvolution:
    """The norm of channels [c], and the kernel [h,w,c,d] of the convolution behind it."""

    norm: Norm
    kernel: Array


@struct.dataclass
class ResNetBlock:
    """The convolutions of a residual branch, and the kernel [1,1,c,d] of the shortcut; None: x is the shortcut."""

    branch: tuple[NormedConvolution, ...]
    shortcut: Array | None


@struct.dataclass
class ResNetEmbed:
    """The kernel [h,w,c,d] of the stem, blocks, the norm of their channels, the map from these to D, what positions
    need, the vector [D] before the grid, and the norm over all. None where a model lacks one."""

    stem: Array
    blocks: tuple[ResNetBlock, ...]
    last_norm: Norm
    projection: Linear
    positions: PyTree
    cls: Array | None
    norm: Norm | None


def specs(options: ResNet, config: Config) -> ResNetEmbed:
    """The spec tree of the network."""
    width = options.stages[0][0] // options.ratio
    stem = _kernel_spec(config, 7 if options.stem == "large" else 3, options.channels, width)
    blocks: list[ResNetBlock] = []
    for block_width, count in options.stages:
        for index in range(count):
            blocks.append(_block_specs(options, config, width, block_width, index == 0))
            width = block_width
    return ResNetEmbed(
        stem=stem,
        blocks=tuple(blocks),
        last_norm=_norm_spec(config, width),
        projection=linear_specs(config, "c", "D", bias=options.bias, c=width),
        positions=POSITIONS[config.position.name].embed_specs(config.position, config),
        cls=vector_spec(config, "D") if options.cls else None,
        norm=norm_specs(config) if options.norm else None,
    )


def _block_specs(options: ResNet, config: Config, inputs: int, outputs: int, begins_stage: bool) -> ResNetBlock:
    sides = SIDES[options.kind]
    widths = [inputs, *[outputs // options.ratio] * (len(sides) - 1), outputs]
    return ResNetBlock(
        branch=tuple(
            NormedConvolution(_norm_spec(config, width), _kernel_spec(config, side, width, next_width))
            for side, width, next_width in zip(sides, widths[:-1], widths[1:], strict=True)
        ),
        shortcut=_kernel_spec(config, 1, inputs, outputs) if begins_stage else None,
    )


def _kernel_spec(config: Config, side: int, inputs: int, outputs: int) -> ArraySpec:
    return weight_spec(config, "hwcd", inputs=3, h=side, w=side, c=inputs, d=outputs)


def _norm_spec(config: Config, width: int) -> Norm:
    return Norm(scale_spec(config, "c", c=width), bias_spec(config, "c", c=width))


def embed(
    call: LayerCall[ResNet, ResNetEmbed, None],
    pixels: Array | MaskedPixels,
    positions: Array | None = None,
    types: Array | None = None,
) -> Array:
    """`embed_network`: [CLS], if any, then the last grid."""
    return embed_network(call, features, [call.params.cls], pixels, positions, types)


def features(params: ResNetEmbed, options: ResNet, pixels: Array) -> Array:
    """pixels [B,H,W,C] -> the last grid [B,r,c,d], normalized, negative values 0, in the dtype of the pixels."""
    if options.stem == "large":
        x = convolution(params.stem, pixels, 2)
        x = largest_neighbours(x)
    else:
        x = convolution(params.stem, pixels, 1)
    for index, block in enumerate(params.blocks):
        with jax.named_scope(f"block {index}"):
            x = _block(block, options, x, 2 if index and block.shortcut is not None else 1)
    return jax.nn.relu(group_norm(params.last_norm, x, options.groups))


def _block(block: ResNetBlock, options: ResNet, x: Array, stride: int) -> Array:
    """x [B,R,C,c] -> [B,r,c,d]: the shortcut and a branch, in which the first kernel of 3 x 3 places has the stride."""
    shortcut, y, strided = x, x, SIDES[options.kind].index(3)
    for index, layer in enumerate(block.branch):
        y = jax.nn.relu(group_norm(layer.norm, y, options.groups))
        if index == 0 and block.shortcut is not None:
            shortcut = convolution(block.shortcut, y, stride)
        y = convolution(layer.kernel, y, stride if index == strided else 1)
    return shortcut + y


@partial(jax.checkpoint, static_argnums=(2,))  # the backward pass reads x, not each of its shifts
def convolution(kernel: Array, x: Array, stride: int) -> Array:
    """x [B,R,C,c], kernel [h,w,c,d] -> [B,r,c,d]: weighted sums over h x w places, at every `stride`-th one.

    The weights behind an output have mean 0 and variance 1, computed in float32 (Qiao et al. 2019, eq. 5). Zeros lie
    beyond the grid.
    """
    weights = unshard_fsdp(kernel_of(kernel)).astype(jnp.float32)
    centred = weights - weights.mean((0, 1, 2), keepdims=True)
    weights = centred * jax.lax.rsqrt(jnp.square(centred).mean((0, 1, 2), keepdims=True) + WEIGHT_EPS)
    return weighted_squares(weights, x, stride)


def group_norm(layer: Norm, x: Array, groups: int) -> Array:
    """x [B,R,C,c] -> [B,R,C,c]: each group of channels of an image has mean 0 and variance 1, times a scale plus a
    bias; computed in float32 (Wu & He 2018, eq. 7)."""
    wide = reshape_rows(x.astype(jnp.float32), len(x), x.shape[1] * x.shape[2], groups, x.shape[3] // groups)
    wide = wide - wide.mean((1, 3), keepdims=True)
    wide = wide * jax.lax.rsqrt(jnp.square(wide).mean((1, 3), keepdims=True) + GROUP_EPS)
    y = reshape_rows(wide, *x.shape)
    y = y * broadcast_param(layer.scale, y) + broadcast_param(layer.bias, y)
    return y.astype(x.dtype)


INPUT = Input(specs, embed, contents)
