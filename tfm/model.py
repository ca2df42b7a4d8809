"""Embeddings, a stack of blocks, and the encoder made of them."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm import params
from tfm.attention import Dense
from tfm.block import Block, block_specs, transformer_block
from tfm.config import Config
from tfm.masks import Mask, causal
from tfm.ops import Norm, dropout, lookup, norm, norm_specs, split
from tfm.positions import POSITIONS, position_specs, rotary


@struct.dataclass
class Embed:
    """Tables of tokens [V,D], positions [P,D] and token types [Y,D], and the norm over their sum; None where a variant lacks one."""

    tokens: Array
    positions: Array | None
    types: Array | None
    norm: Norm | None


@struct.dataclass
class Encoder:
    """Embeddings, blocks stacked along L, and the last norm, which pre-norm models need. With a causal mask it is a decoder."""

    embed: Embed
    blocks: Block
    norm: Norm | None


def encoder_specs(config: Config) -> Encoder:
    """The spec tree of an encoder, or of a decoder that reads nothing but its own text."""
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
    turns = rotary(config, _places(tokens) if positions is None else positions)
    return stack(model, config, x, Dense(mask, turns=turns), key=stack_key)[0]


def decoder(
    model: Encoder, config: Config, tokens: Array, mask: Mask | None = None, positions: Array | None = None, key: Array | None = None
) -> Array:
    """tokens [B,T] -> hidden states [B,T,D]: an encoder whose tokens see themselves and what is before them, where `mask` allows it.

    Radford et al. 2018, section 3.1. Raises ValueError as `encoder` does.
    """
    return encoder(model, config, tokens, causal() if mask is None else causal() & mask, positions, key=key)


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
        positions = _places(tokens)
    x = lookup(tables.tokens, tokens) + POSITIONS[config.position](tables.positions, positions, config.width)
    if tables.types is not None:
        x = x + lookup(tables.types, jnp.zeros_like(tokens) if types is None else types)
    if tables.norm is not None:
        x = norm(config, tables.norm, x)
    return dropout(x, config.dropout, key).astype(config.dtype)


def _places(tokens: Array) -> Array:
    """tokens [B,T] -> 0..T-1 in every row."""
    return jnp.broadcast_to(jnp.arange(tokens.shape[1])[None], tokens.shape)


def stack(
    model: Encoder, config: Config, x: Array, way: Dense | None = None, given: Any = None, key: Array | None = None
) -> tuple[Array, Any]:
    """x [B,T,D] through the blocks, scanned or unrolled over the same leaves, and the last norm -> [B,T,D].

    Every layer attends in the same way, by default densely and without a mask. What it is given, and what it hands back, is stacked
    along L: `tfm.Recorded()` hands back the attention weights [L,B,K,G,T,S].
    """

    def layer(x, inputs):
        block, layer_given, layer_key = inputs
        return transformer_block(block, config, x, way, layer_given, layer_key)

    if config.remat == "block":
        layer = jax.checkpoint(layer)
    inputs = (model.blocks, given, None if key is None else jax.random.split(key, config.layers))
    if config.scan:
        x, found = jax.lax.scan(layer, x, inputs)
    else:
        each = []
        for layer_inputs in unstack(inputs, config.layers):
            x, handed = layer(x, layer_inputs)
            each.append(handed)
        found = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
    return (x if model.norm is None else norm(config, model.norm, x)), found


def unstack(tree, layers: int) -> list:
    """A tree whose leaves are stacked along L -> one tree a layer. Its gradient stacks: indexing would add up L padded copies."""
    leaves, structure = jax.tree.flatten(tree)
    columns = [jnp.unstack(leaf) for leaf in leaves]
    return [jax.tree.unflatten(structure, [column[layer] for column in columns]) for layer in range(layers)]
