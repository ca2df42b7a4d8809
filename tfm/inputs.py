"""Token embeddings: rows of tables, added up, normalized and mapped to the width of the model."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.interfaces import Input, LayerCall
from tfm.norms import Norm, norm, norm_specs
from tfm.ops import Linear, dropout, linear, linear_specs, lookup
from tfm.params import weight_spec
from tfm.sharding import named_sharding, positions_like, spec_of
from tfm.tables.positions import POSITIONS


@struct.dataclass
class Embed:
    """Tables of tokens [V,U] and token types [Y,U], what positions need, the norm over them, and the map from U to D.

    None where a model lacks one.
    """

    tokens: Any
    positions: Any
    types: Array | None
    norm: Norm | None
    projection: Linear | None = None


def specs(options: Tokens, config: Config) -> Embed:
    """The spec tree of the embeddings."""
    axis = config.embed_axis
    projection_bias, has_map = (
        options.projection == "last",
        options.width is not None and options.projection != "repeat",
    )
    return Embed(
        tokens=weight_spec(config, "V" + axis),
        positions=POSITIONS[config.position.name].embed_specs(config.position, config),
        types=weight_spec(config, "Y" + axis) if options.token_types else None,
        norm=norm_specs(config, "D" if options.projection == "first" else axis) if options.norm else None,
        projection=linear_specs(config, "U", "D", bias=projection_bias) if has_map else None,
    )


def embed(
    call: LayerCall[Tokens, Embed, None],
    tokens: Array,
    positions: Array | None = None,
    types: Array | None = None,
) -> Array:
    """tokens, positions and types int32 [B,T] -> [B,T,D], as `tfm.embed` does."""
    tables, options, config = call.params, call.options, call.config
    for name, ids in {"tokens": tokens, "positions": positions, "types": types}.items():
        check_ids(name, ids, tokens)
    if positions is None:
        limit = config.max_length
        if limit is not None and tokens.shape[1] > limit:
            raise ValueError(
                f"{tokens.shape[1]} tokens are more than the {limit} positions of the model; shorten the input"
            )
        positions = default_positions(tokens)
    x = lookup(tables.tokens, tokens) * (config.width**0.5 if options.scale else 1.0)
    x = POSITIONS[config.position.name].embed(LayerCall(config.position, config, tables.positions), x, positions)
    if tables.types is not None:
        x = x + lookup(tables.types, jnp.zeros_like(tokens) if types is None else types)
    if options.projection == "first":
        x = _project(tables, config, x)
    if tables.norm is not None:
        x = norm(config, tables.norm, x)
    x = dropout(x, config.dropout, call.key).astype(config.dtype)
    if options.projection == "repeat":
        return jnp.concatenate([x] * (config.width // x.shape[-1]), axis=-1)
    return _project(tables, config, x) if options.projection == "last" else x


def check_ids(name: str, ids: Any, tokens: Array) -> None:
    """Raises ValueError unless ids are absent or an integer array [B,T], with the shape of the tokens."""
    if ids is None:
        return
    shape, dtype = getattr(ids, "shape", None), getattr(ids, "dtype", None)
    if shape is None or dtype is None:
        raise ValueError(f"{name} must be an array [B,T], not a {type(ids).__name__}; wrap it in jnp.array")
    if len(shape) != 2 or not jnp.issubdtype(dtype, jnp.integer):
        raise ValueError(f"{name} must be integers [B,T], not {dtype} {list(shape)}")
    if name != "tokens" and shape != tokens.shape and 1 not in shape[:1]:
        raise ValueError(f"{name} must have the shape {list(tokens.shape)} of the tokens, not {list(shape)}")


def _project(tables: Embed, config: Config, x: Array) -> Array:
    """x [B,T,U] -> [B,T,D]."""
    if tables.projection is None:
        return x
    return linear(tables.projection, "BTU,UD->BTD", x.astype(config.dtype))


def contents(options: Tokens, config: Config, count: int, length: int) -> Array:
    """int32 [count,length]: tokens from all over the vocabulary, each repeated."""
    ids = jnp.asarray(np.linspace(0, config.vocab - 1, count), jnp.int32)
    return jnp.broadcast_to(ids[:, None], (count, length))


@struct.dataclass
class MaskedPixels:
    """Images of which some patches are masked (BEiT: Bao et al. 2021, section 2.3): an encoder reads them as it reads
    pixels.

    pixels: float [B,H,W,C]
    masked: bool [B,P], True for a patch that is not seen, row by row
    """

    pixels: Array
    masked: Array


@struct.dataclass
class PicturedTokens:
    """Texts, each with an image: an encoder reads the tokens of a text and then the patches of its image.

    tokens: int32 [B,T]
    pixels: float [B,H,W,C]
    """

    tokens: Array
    pixels: Array


def default_positions(x: Array) -> Array:
    """x [B,T,...] -> 0..T-1 in every row."""
    shape, spec = x.shape[:2], spec_of(x)[:2]
    return jnp.broadcast_to(positions_like(x), shape, out_sharding=named_sharding(x, x, *spec))


TOKENS = Input(specs, embed, contents)
