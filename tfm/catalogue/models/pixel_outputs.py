"""Outputs for every pixel of a picture: a patch has those of a grid of cells, which become pixels (SETR: Zheng et al.
2021, section 3.3; the linear decoder of Segmenter: Strudel et al. 2021, section 3.2)."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
from jax import Array

from tfm.config.model import Config
from tfm.models.encoder import encoder_specs
from tfm.models.features import features_axis, mix_specs
from tfm.models.heads import Tagger, patch_logits
from tfm.ops import linear_specs
from tfm.sharding import reshape_rows


def pixel_specs(config: Config, outputs: int, cells: int = 1, dense: bool = False) -> Tagger:
    """The spec tree of a model with `outputs` numbers for each of cells x cells parts of a patch of the last stage;
    `dense` puts a map and an activation before them."""
    last, (axis, sizes) = config.stage_configs[-1], features_axis(config)
    last = dataclasses.replace(last, classes=outputs * cells**2)
    return Tagger(
        encoder=encoder_specs(config),
        output=linear_specs(last, "D" if dense else axis, "C", bias=True, **({} if dense else sizes)),
        dense=linear_specs(last, axis, "E", bias=True, **sizes) if dense else None,
        mix=mix_specs(config),
    )


def pixel_outputs(
    model: Tagger, config: Config, hidden: Array, shape: tuple[int, int, int], key: Array | None = None
) -> Array:
    """hidden [B,T,D] of pictures -> float32 [B,H,W,C], of the `shape` H, W, C. A key turns dropout on.

    The outputs of all cells are a grid, which is resized bilinearly where it is of another height and width. Raises
    ValueError for a model that reads no grid, and where outputs do not divide into squares of C.
    """
    (rows, columns), (height, width, channels) = last_grid(config), shape
    x = patch_logits(model, config.stage_configs[-1], hidden, key)
    batch = len(x)
    cells = math.isqrt(x.shape[-1] // channels)
    if cells**2 * channels != x.shape[-1]:
        raise ValueError(f"{x.shape[-1]} outputs of a patch are no square of cells with {channels} numbers each")
    x = reshape_rows(x, batch, rows, columns, cells, cells, channels).swapaxes(2, 3)
    x = reshape_rows(x, batch, rows * cells, columns * cells, channels)
    if rows * cells != height:
        x = jnp.einsum("BhwC,Hh->BHwC", x, bilinear(rows * cells, height))
    if columns * cells != width:
        x = jnp.einsum("BHwC,Ww->BHWC", x, bilinear(columns * cells, width))
    return x


def last_grid(config: Config) -> tuple[int, int]:
    """Rows and columns of the patches of the last stage. Raises ValueError for a model that reads no grid."""
    grid = config.stage_configs[-1].input.grid
    if grid is None:
        raise ValueError(f"input={config.input.name} makes no grid of patches; say input=patches")
    return grid


def bilinear(size: int, resized: int) -> np.ndarray:
    """float32 [resized,size]: what each of `resized` pixels of a line is made of, centres on centres, without
    antialiasing. Beyond the first and the last centre a line is constant."""
    centres = np.clip((np.arange(resized) + 0.5) * size / resized - 0.5, 0, size - 1)
    distances = abs(centres[:, None] - np.arange(size))
    return np.maximum(0, 1 - distances).astype(np.float32)
