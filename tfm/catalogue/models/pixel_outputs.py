"""Outputs for every pixel of a picture: a patch has those of a grid of cells, which become pixels (SETR: Zheng et al.
2021, section 3.3; the linear decoder of Segmenter: Strudel et al. 2021, section 3.2).

They are read from the states of the last stage, or from those of all stages, on the grid of the first one (the all-MLP
decoder of SegFormer: Xie et al. 2021, section 3.2).
"""

import dataclasses
import math
from typing import TypeAlias

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.config.model import Config
from tfm.models.encoder import Encoder, encoder_specs, stage_states
from tfm.models.features import features, features_axis, mix_specs
from tfm.models.heads import Tagger, patch_logits
from tfm.norms import Norm, batch_norm, norm_specs
from tfm.ops import Linear, dropout, einsum, linear, linear_specs, split
from tfm.params import weight_spec
from tfm.sharding import replicate_length, reshape_rows

# Added to the variance of a batch, as torch does.
_BATCH_EPS = 1e-5


@struct.dataclass
class StageDecoder:
    """Maps of the states of each stage to the width w of the decoder, and what joins them: a kernel [c,w] for all
    stages side by side, the last one first, and a batch norm [w]."""

    stages: tuple[Linear, ...]
    kernel: Array
    norm: Norm


@struct.dataclass
class StageTagger:
    """An encoder in stages, a decoder of the states of all, and outputs [w,C] for each patch of the first stage."""

    encoder: Encoder
    fusion: StageDecoder
    output: Linear


PixelModel: TypeAlias = Tagger | StageTagger


def pixel_specs(config: Config, outputs: int, cells: int = 1, dense: bool = False) -> PixelModel:
    """The spec tree of a model with `outputs` numbers for each of cells x cells parts of a patch: of the last stage,
    with `head.decoder_width` of the first. `dense` puts a map and an activation before them.

    Raises ValueError for such a map behind a decoder.
    """
    last, (axis, sizes) = config.stage_configs[-1], features_axis(config)
    last = dataclasses.replace(last, classes=outputs * cells**2)
    if (width := config.head.decoder_width) is not None:
        if dense:
            raise ValueError(f"head.decoder_width={width} ends with a map and an activation; leave out another one")
        decoder = _decoder_specs(config, width)
        return StageTagger(encoder_specs(config), decoder, linear_specs(last, "w", "C", bias=True, w=width))
    return Tagger(
        encoder=encoder_specs(config),
        output=linear_specs(last, "D" if dense else axis, "C", bias=True, **({} if dense else sizes)),
        dense=linear_specs(last, axis, "E", bias=True, **sizes) if dense else None,
        mix=mix_specs(config),
    )


def _decoder_specs(config: Config, width: int) -> StageDecoder:
    stages = config.stage_configs
    return StageDecoder(
        stages=tuple(linear_specs(stage, "D", "w", bias=True, w=width) for stage in stages),
        kernel=weight_spec(config, "cw", c=width * len(stages), w=width),
        norm=norm_specs(dataclasses.replace(config, norm="batch"), "w", w=width),
    )


def pixel_features(model: PixelModel, config: Config, pixels: Array, key: Array | None = None) -> Array:
    """pixels [B,H,W,C] -> what outputs of pixels are read from: states [B,T,D] of the last stage, or of a decoder those
    of the patches of the first one [B,T,w]. A key turns dropout on."""
    if isinstance(model, Tagger):
        return features(model.encoder, model.mix, config, pixels, key=key)
    return _joined(model.fusion, config, stage_states(model.encoder, config, pixels, key=key))


def _joined(decoder: StageDecoder, config: Config, states: list[Array]) -> Array:
    """States [B,T,D] of each stage -> [B,T,w] of the patches of the first one.

    A bilinear resize and a linear map of each place can change places: a coarse grid is mapped before it grows.
    """
    grid, kernels = output_grid(config), jnp.split(decoder.kernel, len(states))[::-1]
    parts: list[Array] = []
    for stage, x, layer, kernel in zip(config.stage_configs, states, decoder.stages, kernels, strict=True):
        x = replicate_length(x)[:, stage.input.prefix :]
        x = einsum("BTv,vw->BTw", linear(layer, "BTD,Dw->BTw", x), kernel, jnp.float32)
        parts.append(resized(reshape_rows(x, len(x), *_grid(stage), x.shape[-1]), *grid))
    x = jnp.maximum(batch_norm(decoder.norm, sum(parts[1:], parts[0]), _BATCH_EPS), 0)
    return reshape_rows(x, len(x), grid[0] * grid[1], x.shape[-1]).astype(states[-1].dtype)


def pixel_outputs(
    model: PixelModel, config: Config, hidden: Array, shape: tuple[int, int, int], key: Array | None = None
) -> Array:
    """hidden [B,T,D] of `pixel_features` -> float32 [B,H,W,C], of the `shape` H, W, C. A key turns dropout on.

    The outputs of all cells are a grid, which is resized bilinearly where it is of another height and width. Raises
    ValueError for a model that reads no grid, and where outputs do not divide into squares of C.
    """
    (rows, columns), (height, width, channels) = output_grid(config), shape
    if isinstance(model, Tagger):
        x = patch_logits(model, config.stage_configs[-1], hidden, key)
    else:
        x = linear(model.output, "BTw,wC->BTC", dropout(hidden, config.dropout, key)).astype(jnp.float32)
    batch = len(x)
    cells = math.isqrt(x.shape[-1] // channels)
    if cells**2 * channels != x.shape[-1]:
        raise ValueError(f"{x.shape[-1]} outputs of a patch are no square of cells with {channels} numbers each")
    x = reshape_rows(x, batch, rows, columns, cells, cells, channels).swapaxes(2, 3)
    return resized(reshape_rows(x, batch, rows * cells, columns * cells, channels), height, width)


def pixel_logits(model: PixelModel, config: Config, pixels: Array, key: Array | None = None) -> Array:
    """pixels [B,H,W,C] -> float32 logits [B,h,w,C] of the classes of each patch that has outputs (Xie et al. 2021,
    section 3.2). A key turns dropout on. Raises ValueError as `pixel_outputs` does."""
    encoder_key, head_key = split(key, 2)
    hidden = pixel_features(model, config, pixels, encoder_key)
    return pixel_outputs(model, config, hidden, (*output_grid(config), config.classes), head_key)


def output_grid(config: Config) -> tuple[int, int]:
    """Rows and columns of the patches that have outputs. Raises ValueError for a model that reads no grid."""
    return last_grid(config) if config.head.decoder_width is None else _grid(config)


def last_grid(config: Config) -> tuple[int, int]:
    """Rows and columns of the patches of the last stage. Raises ValueError for a model that reads no grid."""
    return _grid(config.stage_configs[-1])


def _grid(stage: Config) -> tuple[int, int]:
    if stage.input.grid is None:
        raise ValueError(f"input={stage.input.name} makes no grid of patches; say input=patches")
    return stage.input.grid


def resized(x: Array, height: int, width: int) -> Array:
    """float32 x [B,h,w,C] -> [B,height,width,C], bilinearly."""
    if x.shape[1] != height:
        x = jnp.einsum("BhwC,Hh->BHwC", x, bilinear(x.shape[1], height))
    if x.shape[2] != width:
        x = jnp.einsum("BHwC,Ww->BHWC", x, bilinear(x.shape[2], width))
    return x


def bilinear(size: int, resized: int) -> np.ndarray:
    """float32 [resized,size]: what each of `resized` pixels of a line is made of, centres on centres, without
    antialiasing. Beyond the first and the last centre a line is constant."""
    centres = np.clip((np.arange(resized) + 0.5) * size / resized - 0.5, 0, size - 1)
    distances = abs(centres[:, None] - np.arange(size))
    return np.maximum(0, 1 - distances).astype(np.float32)
