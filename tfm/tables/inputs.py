"""Inputs by the tag of their options, and the embeddings that they make."""

from typing import Any

import jax
from jax import Array

from tfm.catalogue.inputs import (
    characters,
    frames,
    merging,
    patches,
    resnet,
    resnet_v1,
    spectrogram,
    tokens_and_patches,
    tubes,
)
from tfm.catalogue.inputs.frames import PaddedFrames
from tfm.config.model import Config
from tfm.inputs import TOKENS, MaskedPixels, PicturedTokens
from tfm.interfaces import Input, LayerCall
from tfm.options.choices import Options

INPUTS: dict[str, Input] = {
    "tokens": TOKENS,
    "characters": characters.INPUT,
    "patches": patches.INPUT,
    "resnet": resnet.INPUT,
    "resnet_v1": resnet_v1.INPUT,
    "merging": merging.INPUT,
    "tokens_and_patches": tokens_and_patches.INPUT,
    "frames": frames.INPUT,
    "spectrogram": spectrogram.INPUT,
    "tubes": tubes.INPUT,
}


def input_of(options: Options) -> Input:
    """The functions of the input that options describe."""
    return INPUTS[options.name]


def embed_specs(config: Config) -> Any:
    """The spec tree of the embeddings."""
    return INPUTS[config.input.name].specs(config.input, config)


@jax.named_scope("embed")
def embed(
    tables: Any,
    config: Config,
    inputs: Array | MaskedPixels | PicturedTokens | PaddedFrames,
    positions: Array | None = None,
    types: Array | None = None,
    key: Array | None = None,
) -> Array:
    """inputs -> [B,T,D] in `config.dtype`; a key turns dropout on.

    inputs: tokens int32 [B,T], or pixels float [B,H,W,C] or `MaskedPixels` where `config.input` reads images,
        or `PicturedTokens` where it reads both, or frames float [B,T,C] or `PaddedFrames`, or videos float
        [B,F,H,W,C]
    positions: int32 [B,T]; 0..T-1 by default
    types: int32 [B,T], which sentence of a pair a token belongs to; 0 by default

    Raises ValueError for other shapes or dtypes, and for more tokens than `config.max_length` where positions are not
    given.
    """
    call: LayerCall[Options, Any, None] = LayerCall(config.input, config, tables, key=key)
    return INPUTS[config.input.name].embed(call, inputs, positions, types)
