"""Squares of a spectrogram as vectors: one linear map of the numbers of each (AST: Gong et al. 2021, section 2.1)."""

import jax
import jax.numpy as jnp
from jax import Array, lax

from tfm.catalogue.inputs.frames import PaddedFrames, check_frames
from tfm.catalogue.inputs.patches import PatchEmbed, embed_grid, projected
from tfm.catalogue.options.frames import Spectrogram
from tfm.config.model import Config
from tfm.interfaces import Input, LayerCall
from tfm.norms import norm_specs
from tfm.ops import linear_specs
from tfm.params import vector_spec
from tfm.sharding import reshape_rows
from tfm.tables.positions import POSITIONS


def specs(options: Spectrogram, config: Config) -> PatchEmbed:
    """The spec tree of the embeddings, those of pictures of one channel."""
    return PatchEmbed(
        projection=linear_specs(config, "hwc", "D", bias=options.bias, h=options.patch, w=options.patch, c=1),
        positions=POSITIONS[config.position.name].embed_specs(config.position, config),
        cls=vector_spec(config, "D") if options.cls else None,
        registers=None,
        distilled=vector_spec(config, "D") if options.distilled else None,
        mask_token=None,
        norm=norm_specs(config) if options.norm else None,
    )


def embed(
    call: LayerCall[Spectrogram, PatchEmbed, None],
    inputs: Array | PaddedFrames,
    positions: Array | None = None,
    types: Array | None = None,
) -> Array:
    """frames float [B,T,C] -> [B,S,D], as `tfm.embed` does: [CLS] and the second vector, if any, then the squares of
    the lowest bands along time, and so on.

    What stands behind the end of an input is read as all else is, also of `PaddedFrames`.
    """
    tables, options, config = call.params, call.options, call.config
    frames = inputs.frames if isinstance(inputs, PaddedFrames) else inputs
    check_frames(options, frames, types)
    x = projected(tables.projection, cut(options, frames.astype(config.dtype)))
    return embed_grid(call, [tables.cls, tables.distilled], x, positions)


def cut(options: Spectrogram, frames: Array) -> Array:
    """frames [B,T,C] -> the squares [B,S,h,w,1] of h bands and w frames, those of the lowest bands first."""
    rows = _pieces(frames.swapaxes(1, 2), 1, options.patch, options.band_stride)
    squares = _pieces(rows, 3, options.patch, options.time_stride).swapaxes(2, 3)
    batch, bands, times, height, width = squares.shape
    return reshape_rows(squares, batch, bands * times, height, width, 1)


def _pieces(x: Array, axis: int, side: int, stride: int) -> Array:
    """Pieces of `side` places of an axis, one at every `stride`-th place, as two axes: which piece, and where in it."""
    last = (x.shape[axis] - side) // stride * stride
    shifts = [lax.slice_in_dim(x, first, first + last + 1, stride, axis) for first in range(side)]
    return jnp.stack(shifts, axis=axis + 1)


def contents(options: Spectrogram, config: Config, count: int, length: int) -> Array:
    """float32 [count,T,C]: inputs, each of one random number, as squares that overlap are equal."""
    numbers = jax.random.normal(jax.random.key(0), (count, 1, 1))
    return jnp.broadcast_to(numbers, (count, options.size, options.channels))


INPUT = Input(specs, embed, contents)
