"""Tokens of a text and patches of an image as one sequence (ViLT: Kim et al. 2021, section 3.1)."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm import inputs
from tfm.catalogue.inputs import patches
from tfm.catalogue.options.pictures import TokensAndPatches
from tfm.config.inputs import Tokens
from tfm.config.model import Config
from tfm.inputs import PicturedTokens, check_ids
from tfm.interfaces import Input, LayerCall
from tfm.norms import Norm, norm_specs
from tfm.ops import Linear, linear_specs, lookup
from tfm.params import PyTree, weight_spec
from tfm.sharding import replicate_length
from tfm.tables.positions import POSITIONS


@struct.dataclass
class TokenAndPatchEmbed:
    """The table of tokens [V,D], the map [h,w,c,D] of the pixels of a patch, what positions need, and the norm over
    all, or None.

    The bias of the map tells patches from tokens, as vectors of two types do in the paper.
    """

    tokens: Array
    projection: Linear
    positions: PyTree
    norm: Norm | None


def specs(options: TokensAndPatches, config: Config) -> TokenAndPatchEmbed:
    """The spec tree of the embeddings."""
    side = options.patch
    return TokenAndPatchEmbed(
        tokens=weight_spec(config, "VD"),
        projection=linear_specs(config, "hwc", "D", bias=True, h=side, w=side, c=options.channels),
        positions=POSITIONS[config.position.name].embed_specs(config.position, config),
        norm=norm_specs(config) if options.norm else None,
    )


def embed(
    call: LayerCall[TokensAndPatches, TokenAndPatchEmbed, None],
    texts: PicturedTokens,
    positions: Array | None = None,
    types: Array | None = None,
) -> Array:
    """T tokens and P patches -> [B,T+P,D], as `tfm.embed` does: the tokens first. Positions count through both.

    Raises ValueError for anything but `PicturedTokens`, and for types.
    """
    tables, options, config = call.params, call.options, call.config
    if not isinstance(texts, PicturedTokens):
        raise ValueError(f"inputs must be tfm.PicturedTokens(tokens, pixels), not {type(texts).__name__}")
    check_ids("tokens", texts.tokens, texts.tokens)
    tokens = replicate_length(lookup(tables.tokens, texts.tokens))
    patches.check_pixels(options.patches, texts.pixels, types)
    squares = patches.patches(options.patches, texts.pixels).astype(config.dtype)
    x = jnp.concatenate([tokens, patches.projected(tables.projection, squares)], axis=1)
    return patches.embed_grid(call, [], x, positions)


def contents(options: TokensAndPatches, config: Config, count: int, length: int) -> PicturedTokens:
    """A text of one repeated token, and an image of one repeated patch, `count` times."""
    tokens = inputs.contents(Tokens(), config, count, config.length)
    return PicturedTokens(tokens, patches.contents(options.patches, config, count, length))


INPUT = Input(specs, embed, contents)
