"""Embeddings, a stack of blocks, and the encoder made of them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax import checkpoint_policies as keep
from jax.ad_checkpoint import checkpoint_name

from tfm import params
from tfm.attention.attend import Dense, Near, Recorded, keys_values
from tfm.config.model import Config
from tfm.layers.block import Block, block_specs, transformer_block
from tfm.masks import Mask, causal, padding, window
from tfm.ops import Linear, Norm, dropout, linear, linear_specs, lookup, norm, norm_specs, split
from tfm.positions.absolute import POSITIONS, position_specs, rotary, t5_bias
from tfm.positions.disentangled import RelativeEmbedding, distance_rows, distance_specs
from tfm.sharding import gather_sequence, named_sharding, positions_like, scatter_sequence, spec_of


@struct.dataclass
class Embed:
    """Tables of tokens [V,U], positions [P,U] and token types [Y,U], the norm over their sum, and the map from U to D; None where a
    variant lacks one. The positions of buckets are [R,K,G]."""

    tokens: Any
    positions: Array | None
    types: Array | None
    norm: Norm | None
    up: Linear | None = None


@struct.dataclass
class Encoder:
    """Embeddings, blocks stacked along L, the last norm, which pre-norm models need, and the distances that disentangled attention knows.
    With a causal mask it is a decoder.

    Where the first block has no norm before its attention, those of the others are stacked along L - 1.
    """

    embed: Embed
    blocks: Block
    norm: Norm | None
    distances: RelativeEmbedding | None = None


@struct.dataclass
class Memory:
    """What an encoder has read, as a decoder needs it: keys and values [L,B,S,K,H], and which places are tokens, valid [B,S].

    `seen` [B,S] adds up, where it is not None, how much attention each place has got while a text was written (a mean over heads and
    layers).
    """

    keys: Array
    values: Array
    valid: Array
    seen: Array | None = None


def encoder_specs(config: Config, cross: bool = False) -> Encoder:
    """The spec tree of an encoder, or of a decoder; with `cross` its blocks attend to a memory too."""
    blocks = params.stacked(block_specs(config, cross), 1 if config.shared else config.layers)
    if not config.first_norm:
        blocks = replace(blocks, attn_norm=params.stacked(norm_specs(config), config.layers - 1))
    return Encoder(
        embed=Embed(
            tokens=params.weight_spec(config, "V" + config.embed_axis),
            positions=position_specs(config),
            types=params.weight_spec(config, "Y" + config.embed_axis) if config.token_types else None,
            norm=norm_specs(config, "D" if config.embed_map == "first" else config.embed_axis)
            if config.embed_norm
            else None,
            up=linear_specs(config, "U", "D", bias=config.embed_map == "last") if config.embed_width else None,
        ),
        blocks=blocks,
        norm=norm_specs(config) if config.order != "post" else None,
        distances=distance_specs(config),
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
    way = Dense(
        around(config, mask),
        **placed(model, config, positions_of(tokens) if positions is None else positions, both=True),
    )
    return stack(model, config, x, way, key=stack_key)[0]


def decoder(
    model: Encoder,
    config: Config,
    tokens: Array,
    mask: Mask | None = None,
    positions: Array | None = None,
    key: Array | None = None,
    memory: Memory | None = None,
) -> Array:
    """tokens [B,T] -> hidden states [B,T,D]: an encoder whose tokens see themselves and what is before them, where `mask` allows it.

    Radford et al. 2018, section 3.1; with a memory, Vaswani et al. 2017, section 3.1. Raises ValueError as `encoder` does.
    """
    embed_key, stack_key = split(key, 2)
    x = embed(model.embed, config, tokens, positions, key=embed_key)
    way = Dense(
        before(config, mask),
        **placed(model, config, positions_of(tokens) if positions is None else positions, both=False),
    )
    return stack(model, config, x, *recalling(way, None, memory), key=stack_key)[0]


def before(config: Config, mask: Mask | None = None) -> Mask:
    """What a decoder's token sees: itself and what is before it, within the window of the model and where `mask` allows it."""
    own = nearby(config, both=False) if config.window and not config.global_every else causal()
    return own if mask is None else own & mask


def around(config: Config, mask: Mask | None = None) -> Mask | None:
    """What an encoder's token sees: what is on both sides of it, within the window of the model and where `mask` allows it."""
    if not config.window or config.global_every:
        return mask
    return nearby(config, both=True) if mask is None else nearby(config, both=True) & mask


def nearby(config: Config, both: bool) -> Mask:
    """The window of the model, to the left or to `both` sides (Beltagy et al. 2020, section 3.1)."""
    return window(config.window // 2, config.window // 2) if both else window(config.window - 1, 0)


def placed(model: Encoder, config: Config, positions: Array, both: bool) -> dict[str, Any]:
    """How attention learns of the positions [B,T]: the angles, the bias, the distances and the kernel of a way of attending, whose tokens
    look to `both` sides, and what is different in layers that see only what is near (ModernBERT: Warner et al. 2024, section 2.1)."""
    if config.relative != "none" and not both:
        raise ValueError(
            f"relative={config.relative} is for encoders, and this is a decoder; try relative=none with position=rotary"
        )
    found: dict[str, Any] = {"turns": rotary(config, positions), "bias": t5_bias(config, model.embed.positions, both)}
    found |= {"distances": distance_rows(config, model.distances), "kernel": config.kernel}
    if not config.global_every:
        return found
    turns = rotary(replace(config, rotary_base=config.rotary_base_near or config.rotary_base), positions)
    return found | {"near": Near(nearby(config, both), turns)}


def remember(model: Encoder, config: Config, states: Array, valid: Array | None = None) -> Memory:
    """The states [B,S,D] of an encoder, and which are tokens [B,S] -> a memory for the decoder `model`."""
    each = [keys_values(layer, config, states) for layer in unstack(model.blocks.cross, config.layers)]
    keys, values = (jnp.stack(layers) for layers in zip(*each, strict=True))
    return Memory(keys, values, jnp.ones(states.shape[:2], bool) if valid is None else valid)


def recalling(way: Dense, given: Any, memory: Memory | None) -> tuple[Any, Any]:
    """A way of attending and what it is given, paired with those for a memory where there is one."""
    if memory is None:
        return way, given
    look = Dense if memory.seen is None else Recorded
    return (way, look(padding(memory.valid), kernel=way.kernel)), (given, (memory.keys, memory.values))


def embed(
    tables: Embed,
    config: Config,
    tokens: Array,
    positions: Array | None = None,
    types: Array | None = None,
    key: Array | None = None,
) -> Array:
    """tokens, positions and types [B,T] -> [B,T,D] in `config.dtype`: the sum of their rows, normalized and with dropout, and mapped to D
    after or before that."""
    if positions is None:
        if config.position == "learned" and tokens.shape[1] > config.length:
            raise ValueError(
                f"{tokens.shape[1]} tokens are more than the {config.length} positions of the model; shorten the input"
            )
        positions = positions_of(tokens)
    x = lookup(tables.tokens, tokens) * (config.width**0.5 if config.embed_scale else 1.0)
    x = x + POSITIONS[config.position](tables.positions, positions, config.sizes["U"])
    if tables.types is not None:
        x = x + lookup(tables.types, jnp.zeros_like(tokens) if types is None else types)
    up = (lambda x: x) if tables.up is None else lambda x: linear(tables.up, "BTU,UD->BTD", x.astype(config.dtype))
    x = up(x) if config.embed_map == "first" else x
    if tables.norm is not None:
        x = norm(config, tables.norm, x)
    x = dropout(x, config.dropout, key).astype(config.dtype)
    return up(x) if config.embed_map == "last" else x


def positions_of(tokens: Array) -> Array:
    """tokens [B,T] -> 0..T-1 in every row."""
    return jnp.broadcast_to(
        positions_like(tokens), tokens.shape, out_sharding=named_sharding(tokens, tokens, *spec_of(tokens))
    )


# What the backward pass finds of each block, by `config.remat`, from the fastest to the smallest; the rest is computed again. Products
# without a batch axis are those with weights: attention scores are not kept, nor are activations and dropout masks. The inputs of blocks
# are always needed, and may wait in the host's memory (Chen et al. 2016, section 4; Rajbhandari et al. 2020, section 6.1). XLA for CPU
# undoes this where layers are not scanned, and a CPU's memory is the host's.
REMAT: dict[str, Callable[..., Callable]] = {
    "none": lambda layer, prevent_cse: layer,
    "dots": partial(jax.checkpoint, policy=keep.dots_with_no_batch_dims_saveable),
    "block": jax.checkpoint,
    "offload": partial(
        jax.checkpoint,
        policy=keep.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=["block input"],
            offload_src="device",
            offload_dst="pinned_host",
        ),
    ),
}


def stack(
    model: Encoder,
    config: Config,
    x: Array,
    way: Any = None,
    given: Any = None,
    key: Array | None = None,
    block: Callable[..., tuple[Array, Any]] = transformer_block,
) -> tuple[Array, Any]:
    """x [B,T,D] through the blocks, scanned or unrolled over the same leaves, and the last norm -> [B,T,D].

    Every layer attends in the same way, by default densely and without a mask. What it is given, and what it hands back, is stacked
    along L: `tfm.Recorded()` hands back the attention weights [L,B,K,G,T,S], and with `block=tfm.watched_block` each layer also what it
    has read [L,B,T,D].
    """

    shared = unstack(model.blocks, 1)[0] if config.shared else None

    def layer(x, inputs):
        layer_params, layer_given, layer_key, number = inputs
        x = checkpoint_name(x, "block input")
        return block(shared or layer_params, config, x, way, layer_given, layer_key, number)

    layer = REMAT[config.remat](layer, prevent_cse=not config.scan)
    keys, x = None if key is None else jax.random.split(key, config.layers), scatter_sequence(x)
    inputs = (None if config.shared else whole(model.blocks, config), given, keys, jnp.arange(config.layers))
    if config.scan:
        x, found = jax.lax.scan(layer, x, inputs, config.layers)
    else:
        each = []
        for layer_inputs in unstack(inputs, config.layers):
            x, handed = layer(x, layer_inputs)
            each.append(handed)
        found = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
    return gather_sequence(x if model.norm is None else norm(config, model.norm, x)), found


def whole(blocks: Block, config: Config) -> Block:
    """The blocks, all of whose leaves have L rows: the first has a norm that it does not use."""
    if config.first_norm:
        return blocks
    return replace(blocks, attn_norm=jax.tree.map(lambda rows: jnp.pad(rows, ((1, 0), (0, 0))), blocks.attn_norm))


def unstack(tree, layers: int) -> list:
    """A tree whose leaves are stacked along L -> one tree a layer. Its gradient stacks: indexing would add up L padded copies."""
    leaves, structure = jax.tree.flatten(tree)
    columns = [jnp.unstack(leaf) for leaf in leaves]
    return [jax.tree.unflatten(structure, [column[layer] for column in columns]) for layer in range(layers)]
