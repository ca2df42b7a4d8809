"""Images as the last grid of a convolutional network: residual blocks of convolutions with batch norms behind them (He
et al. 2016a, section 3.3 and figure 5; the stride of a bottleneck is that of its convolution of 3 x 3 places)."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.catalogue.grid import largest_neighbours, weighted_squares
from tfm.catalogue.inputs.patches import contents, embed_network
from tfm.catalogue.options.pictures import SIDES, ResNetV1
from tfm.config.model import Config
from tfm.inputs import MaskedPixels
from tfm.interfaces import Input, LayerCall
from tfm.low_rank import kernel_of
from tfm.norms import Norm, batch_norm, norm_specs
from tfm.norms.batch import BatchStats
from tfm.ops import Linear, expand_param, linear_specs
from tfm.params import PyTree, bias_spec, constant, fixed_spec, running_spec, scale_spec, weight_spec
from tfm.tables.positions import POSITIONS

# What is added to the variance of a channel.
EPS = 1e-5


@struct.dataclass
class Convolution:
    """The kernel [h,w,c,d] of a convolution, and the norm of its channels [d]."""

    kernel: Array
    norm: Norm


@struct.dataclass
class ConvolutionBlock:
    """The convolutions of a residual branch, and that of the shortcut; None: x is the shortcut."""

    branch: tuple[Convolution, ...]
    shortcut: Convolution | None


@struct.dataclass
class ResNetV1Embed:
    """The stem, blocks, the map from their channels to D, what positions need, and the norm over all, None where a
    model lacks it."""

    stem: Convolution
    blocks: tuple[ConvolutionBlock, ...]
    projection: Linear
    positions: PyTree
    norm: Norm | None = None


def specs(options: ResNetV1, config: Config) -> ResNetV1Embed:
    """The spec tree of the network."""
    width, blocks = options.stem, list[ConvolutionBlock]()
    for stage, (block_width, count) in enumerate(options.stages):
        for index in range(count):
            is_coarser = stage > 0 and index == 0
            blocks.append(_block_specs(options, config, width, block_width, is_coarser or width != block_width))
            width = block_width
    return ResNetV1Embed(
        stem=_convolution_specs(options, config, 7, options.channels, options.stem),
        blocks=tuple(blocks),
        projection=linear_specs(config, "c", "D", bias=True, c=width),
        positions=POSITIONS[config.position.name].embed_specs(config.position, config),
        norm=norm_specs(config) if options.norm else None,
    )


def _block_specs(options: ResNetV1, config: Config, inputs: int, outputs: int, has_shortcut: bool) -> ConvolutionBlock:
    sides = SIDES[options.kind]
    widths = [inputs, *[outputs // options.ratio] * (len(sides) - 1), outputs]
    sizes = zip(sides, widths[:-1], widths[1:], strict=True)
    return ConvolutionBlock(
        branch=tuple(_convolution_specs(options, config, *size) for size in sizes),
        shortcut=_convolution_specs(options, config, 1, inputs, outputs) if has_shortcut else None,
    )


def _convolution_specs(options: ResNetV1, config: Config, side: int, inputs: int, outputs: int) -> Convolution:
    kernel = weight_spec(config, "hwcd", inputs=3, h=side, w=side, c=inputs, d=outputs)
    zeros, ones = constant(0.0), constant(1.0)
    if options.frozen:
        fixed = partial(fixed_spec, config, "d", d=outputs)
        return Convolution(kernel, Norm(fixed(ones), fixed(zeros), BatchStats(fixed(zeros), fixed(ones))))
    running = partial(running_spec, config, "d", d=outputs)
    scale, bias = scale_spec(config, "d", d=outputs), bias_spec(config, "d", d=outputs)
    return Convolution(kernel, Norm(scale, bias, BatchStats(running(zeros), running(ones))))


def embed(
    call: LayerCall[ResNetV1, ResNetV1Embed, None],
    pixels: Array | MaskedPixels,
    positions: Array | None = None,
    types: Array | None = None,
) -> Array:
    """`embed_network`: the last grid."""
    return embed_network(call, features, [], pixels, positions, types)


def features(params: ResNetV1Embed, options: ResNetV1, pixels: Array) -> Array:
    """pixels [B,H,W,C] -> the last grid [B,r,c,d], none of it negative, in the dtype of the pixels."""
    convolve = partial(_convolve, options.frozen)
    x = largest_neighbours(jax.nn.relu(convolve(params.stem, pixels, 2)))
    firsts = [sum(count for _, count in options.stages[:stage]) for stage in range(1, len(options.stages))]
    for index, block in enumerate(params.blocks):
        with jax.named_scope(f"block {index}"):
            stride = 2 if index in firsts else 1
            shortcut = x if block.shortcut is None else convolve(block.shortcut, x, stride)
            x = jax.nn.relu(shortcut + _branch(block, options, x, stride))
    return x


def _branch(block: ConvolutionBlock, options: ResNetV1, x: Array, stride: int) -> Array:
    """x [B,R,C,c] -> [B,r,c,d]: convolutions, of which the first of 3 x 3 places has the stride, and ReLU between."""
    strided, last = SIDES[options.kind].index(3), len(block.branch) - 1
    for index, layer in enumerate(block.branch):
        x = _convolve(options.frozen, layer, x, stride if index == strided else 1)
        x = x if index == last else jax.nn.relu(x)
    return x


def _convolve(frozen: bool, layer: Convolution, x: Array, stride: int) -> Array:
    """x [B,R,C,c] -> [B,r,c,d], normalized."""
    y = _weighted(kernel_of(layer.kernel), x, stride)
    return frozen_norm(layer.norm, y) if frozen else batch_norm(layer.norm, y, EPS)


# The backward pass reads x, not each of its shifts.
_weighted = jax.checkpoint(weighted_squares, static_argnums=(2,))


def frozen_norm(layer: Norm, x: Array) -> Array:
    """x [...,d] -> [...,d]: every channel normalized by the statistics that are there, computed in float32; none of
    these, nor scale and bias, has a gradient."""
    fixed = jax.tree.map(lambda leaf: expand_param(jax.lax.stop_gradient(leaf), x.astype(jnp.float32)), layer)
    scale = fixed.scale * jax.lax.rsqrt(fixed.stats.variance + EPS)
    return ((x.astype(jnp.float32) - fixed.stats.mean) * scale + fixed.bias).astype(x.dtype)


INPUT = Input(specs, embed, contents)
