"""Embeddings, a stack of blocks, and the encoder made of them."""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm import params
from tfm.block import Block, block_specs, transformer_block
from tfm.config import Config
from tfm.masks import Mask
from tfm.ops import Norm, dropout, lookup, norm, norm_specs, split
from tfm.positions import POSITIONS, Bias, position_specs


@struct.dataclass
class Embed:
    """Tables of tokens [V,D], positions [P,D] and token types [Y,D], and the norm over their sum; None where a variant lacks one."""

    tokens: Array
    positions: Array | None
    types: Array | None
    norm: Norm | None


@struct.dataclass
class Encoder:
    """Embeddings, blocks stacked along L, and the last norm, which pre-norm models need."""

    embed: Embed
    blocks: Block
    norm: Norm | None


def encoder_specs(config: Config) -> Encoder:
    """The spec tree of an encoder."""
    return Encoder(
        embed=Embed(
            tokens=params.weight(config, "VD"),
            positions=position_specs(config),
            types=params.weight(config, "YD") if config.token_types else None,
            norm=norm_specs(config) if config.embed_norm else None,
        ),
        blocks=params.stacked(block_specs(config), config.layers),
        norm=norm_specs(config) if config.order == "pre" else None,
    )


def encoder(
    model: Encoder,
    config: Config,
    tokens: Array,
    mask: Mask | None = None,
    positions: Array | None = None,
    types: Array | None = None,
    key: Array | None = None,
) -> Array:
    """tokens [B,T] int32 -> hidden states [B,T,D] in `config.dtype` (Devlin et al. 2018, section 3).

    positions [B,T] default to 0..T-1 and types [B,T] to 0. A key turns dropout on. Raises ValueError for more than `config.length`
    tokens where positions are learned and not given.
    """
    embed_key, stack_key = split(key, 2)
    x = embed(model.embed, config, tokens, positions, types, embed_key)
    x = stack(model.blocks, config, x, mask, key=stack_key)
    return x if model.norm is None else norm(config, model.norm, x)


def embed(
    tables: Embed,
    config: Config,
    tokens: Array,
    positions: Array | None = None,
    types: Array | None = None,
    key: Array | None = None,
) -> Array:
    """tokens, positions and types [B,T] -> [B,T,D] in `config.dtype`: the sum of their rows, normalized and with dropout."""
    if positions is None:
        if config.position == "learned" and tokens.shape[1] > config.length:
            raise ValueError(f"{tokens.shape[1]} tokens are more than the {config.length} positions of the model; shorten the input")
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1])[None], tokens.shape)
    x = lookup(tables.tokens, tokens) + POSITIONS[config.position](tables.positions, positions, config.width)
    if tables.types is not None:
        x = x + lookup(tables.types, jnp.zeros_like(tokens) if types is None else types)
    if tables.norm is not None:
        x = norm(config, tables.norm, x)
    return dropout(x, config.dropout, key).astype(config.dtype)


def stack(
    blocks: Block,
    config: Config,
    x: Array,
    mask: Mask | None = None,
    bias: Bias | None = None,
    key: Array | None = None,
) -> Array:
    """x [B,T,D] through blocks stacked along L -> [B,T,D]: scanned, or unrolled over the same leaves."""

    def layer(x, inputs):
        parameters, layer_key = inputs
        return transformer_block(parameters, config, x, mask, bias, layer_key), None

    if config.remat == "block":
        layer = jax.checkpoint(layer)
    keys = None if key is None else jax.random.split(key, config.layers)
    if config.scan:
        return jax.lax.scan(layer, x, (blocks, keys))[0]
    for inputs in unstack((blocks, keys), config.layers):
        x, _ = layer(x, inputs)
    return x


def unstack(tree, layers: int) -> list:
    """A tree whose leaves are stacked along L -> one tree a layer. Its gradient stacks: indexing would add up L padded copies."""
    leaves, structure = jax.tree.flatten(tree)
    columns = [jnp.unstack(leaf) for leaf in leaves]
    return [jax.tree.unflatten(structure, [column[layer] for column in columns]) for layer in range(layers)]
