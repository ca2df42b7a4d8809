"""Inputs: from what a model reads to vectors. One file an input, named like its tag in `tfm.config.inputs`."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm import variants
from tfm.config.inputs import InputOptions
from tfm.config.model import Config
from tfm.sharding import named_sharding, positions_like, spec_of


class Input(NamedTuple):
    """The functions of one input, as a record.

    specs: (options, config) -> the spec tree of the embeddings
    embed: (tables, options, config, inputs, positions, types, key) -> embeddings [B,T,D] in `config.dtype`
    contents: (options, config, count, length) -> `count` inputs, each of `length` equal contents or more; None for an
        input that no model begins with
    spell: None, or (tables, texts of all tokens, whether each continues a word) -> the embeddings of tokens with these
        texts
    """

    specs: Callable[..., Any]
    embed: Callable[..., Array]
    contents: Callable[..., Array] | None = None
    spell: Callable[..., Any] | None = None


@struct.dataclass
class MaskedPixels:
    """Images of which some patches are masked (BEiT: Bao et al. 2021, section 2.3): an encoder reads them as it reads
    pixels.

    pixels: float [B,H,W,C]
    masked: bool [B,P], True for a patch that is not seen, row by row
    """

    pixels: Array
    masked: Array


def input_of(options: InputOptions) -> Input:
    """The functions of the input that options describe."""
    return variants.load(options).INPUT


def embed_specs(config: Config) -> Any:
    """The spec tree of the embeddings."""
    return input_of(config.input).specs(config.input, config)


@jax.named_scope("embed")
def embed(
    tables: Any,
    config: Config,
    inputs: Any,
    positions: Array | None = None,
    types: Array | None = None,
    key: Array | None = None,
) -> Array:
    """inputs -> [B,T,D] in `config.dtype`; a key turns dropout on.

    inputs: tokens int32 [B,T], or pixels float [B,H,W,C] or `MaskedPixels` where `config.input` reads images
    positions: int32 [B,T]; 0..T-1 by default
    types: int32 [B,T], which sentence of a pair a token belongs to; 0 by default

    Raises ValueError for other shapes or dtypes, and for more tokens than `config.max_length` where positions are not
    given.
    """
    return input_of(config.input).embed(tables, config.input, config, inputs, positions, types, key)


def default_positions(x: Array) -> Array:
    """x [B,T,...] -> 0..T-1 in every row."""
    shape, spec = x.shape[:2], spec_of(x)[:2]
    return jnp.broadcast_to(positions_like(x), shape, out_sharding=named_sharding(x, x, *spec))
