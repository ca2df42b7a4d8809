"""Frames of a sound or of another series as vectors: convolutions along time, an activation behind each (Whisper:
Radford et al. 2022, section 2.2)."""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.catalogue.inputs.patches import embed_grid
from tfm.catalogue.options.frames import Frames, Spectrogram
from tfm.config.model import Config
from tfm.interfaces import Input, LayerCall
from tfm.norms import Norm, norm_specs
from tfm.ops import ACTIVATIONS, Linear, broadcast_param, einsum, linear_specs
from tfm.options.slots import InputOptions
from tfm.params import PyTree
from tfm.tables.positions import POSITIONS


@struct.dataclass
class PaddedFrames:
    """Inputs of several lengths, which an encoder reads as it reads frames.

    frames: float [B,T,C]
    lengths: int32 [B], the frames of each; what stands behind them is not read
    """

    frames: Array
    lengths: Array


@struct.dataclass
class FrameEmbed:
    """The convolutions, whose kernels are [w,c,D] and [w,d,D] and whose biases are [D], what positions need, and the
    norm over all; None where a model lacks one."""

    convolutions: tuple[Linear, ...]
    positions: PyTree
    norm: Norm | None


def specs(options: Frames, config: Config) -> FrameEmbed:
    """The spec tree of the embeddings."""
    letters = ["wc", *["wd"] * (len(options.layers) - 1)]
    return FrameEmbed(
        convolutions=tuple(
            linear_specs(config, inputs, "D", bias=options.bias, w=width, c=options.channels, d=config.width)
            for (width, _), inputs in zip(options.layers, letters, strict=True)
        ),
        positions=POSITIONS[config.position.name].embed_specs(config.position, config),
        norm=norm_specs(config) if options.norm else None,
    )


def embed(
    call: LayerCall[Frames, FrameEmbed, None],
    inputs: Array | PaddedFrames,
    positions: Array | None = None,
    types: Array | None = None,
) -> Array:
    """frames float [B,T,C] -> [B,S,D], as `tfm.embed` does; `PaddedFrames` where some are shorter."""
    tables, options, config = call.params, call.options, call.config
    frames, lengths = (inputs.frames, inputs.lengths) if isinstance(inputs, PaddedFrames) else (inputs, None)
    check_frames(options, frames, types)
    lengths = lengths if options.mask_padding else None
    activation = ACTIVATIONS["gelu"] if options.activation == "gelu" else (lambda x: x)
    x = _until(lengths, frames.astype(config.dtype))
    for index, (layer, (width, stride)) in enumerate(zip(tables.convolutions, options.layers, strict=True)):
        letter = "d" if index else "c"
        x = einsum(f"BTw{letter},w{letter}D->BTD", windows(x, width, stride), layer.kernel, jnp.float32)
        x = activation(x if layer.bias is None else x + broadcast_param(layer.bias, x))
        lengths = None if lengths is None else -(-lengths // stride)
        if index < len(options.layers) - 1:
            x = _until(lengths, x.astype(config.dtype))
    return embed_grid(call, [], x, positions)


def windows(x: Array, width: int, stride: int) -> Array:
    """x [B,T,c] -> [B,S,w,c]: what a convolution reads at every `stride`-th frame, with zeros beyond both ends."""
    count = -(-x.shape[1] // stride)
    before = (width - stride + 1) // 2
    after = max(0, stride * (count - 1) + width - before - x.shape[1])
    x = jnp.pad(x, ((0, 0), (before, after), (0, 0)))
    return jnp.stack([x[:, first : first + stride * (count - 1) + 1 : stride] for first in range(width)], axis=2)


def _until(lengths: Array | None, x: Array) -> Array:
    """x [B,T,c] with zeros behind the end of each row, where some are shorter."""
    if lengths is None:
        return x
    is_read = jnp.arange(x.shape[1], dtype=jnp.int32)[None] < lengths[:, None]
    return jnp.where(is_read[..., None], x, jnp.zeros((), x.dtype))


def valid_frames(config: Config, lengths: Array) -> Array:
    """The frames of each input, int32 [B] -> bool [B,S]: the vectors of `config.input` that layers may see."""
    options = config.input
    assert isinstance(options, Frames | Spectrogram), "a model of frames"
    count = options.max_length(config)
    if isinstance(options, Spectrogram) or not options.mask_padding:
        return jnp.ones((len(lengths), count), bool)
    for _, stride in options.layers:
        lengths = -(-lengths // stride)
    return jnp.arange(count, dtype=jnp.int32)[None] < lengths[:, None]


def check_frames(options: InputOptions, frames: object, types: object) -> None:
    """Raises ValueError unless frames are floating-point numbers of the shape that the model reads."""
    shape, dtype = getattr(frames, "shape", None), getattr(frames, "dtype", None)
    if shape is None or dtype is None:
        raise ValueError(f"frames must be an array [B,T,C], not a {type(frames).__name__}; wrap it in jnp.array")
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"frames must be floating-point numbers, not {dtype}; convert and scale them")
    size, channels = options.array_shape or (0, 0)
    if len(shape) != 3 or tuple(shape[1:]) != (size, channels):
        raise ValueError(
            f"frames must have the shape [B,{size},{channels}] of what the model reads, not {list(shape)}; "
            "pad shorter inputs and say their lengths with tfm.PaddedFrames"
        )
    if types is not None:
        raise ValueError("types tell the sentences of a pair apart, and frames have none; leave them out")


def contents(options: Frames, config: Config, count: int, length: int) -> Array:
    """float32 [count,T,C]: inputs, each of one random frame that is repeated."""
    frame = jax.random.normal(jax.random.key(0), (count, 1, options.channels))
    return jnp.tile(frame, (1, options.size, 1))


INPUT = Input(specs, embed, contents)
