"""Embeddings of tokens from how they are spelled: a convolution over characters, the maximum of every filter, and
highway layers (Kim et al. 2016; Peters et al. 2018, section 3.4)."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array
from jax.sharding import NamedSharding
from jax.typing import DTypeLike

from tfm.catalogue.options.inputs import Characters
from tfm.config.model import Config
from tfm.inputs import check_ids, contents, default_positions
from tfm.interfaces import Input, LayerCall
from tfm.low_rank import kernel_of
from tfm.norms import Norm, norm, norm_specs
from tfm.ops import Linear, dropout, linear, linear_specs, lookup
from tfm.params import ArraySpec, PyTree, bias_spec, constant, fixed_spec, weight_spec
from tfm.tables.positions import POSITIONS

# Characters are bytes; behind them come the start and the end of a word, and what fills up its row.
WORD_START, WORD_END, PADDING = 256, 257, 258
CHARACTERS = 259

# Where the bias of carry gates starts, so that highways let their input pass at first (Srivastava et al. 2015).
CARRY = 2.0


@struct.dataclass
class Highway:
    """The maps [f,f] to what is added and to the gate that carries the input on."""

    transform: Linear
    carry: Linear


@struct.dataclass
class CharacterEmbed:
    """What embeds tokens: spelling [V,c], the characters of each, which nothing trains; characters [k,e]; filters
    [w,e,o] of each width and their bias [o]; highways over all f of them; the map from f to U; positions; a norm;
    and no table of tokens."""

    spelling: Array
    characters: Array
    filters: tuple[Linear, ...]
    highways: tuple[Highway, ...]
    projection: Linear
    positions: PyTree
    norm: Norm | None
    tokens: None = None

    def spelled(self, words: Sequence[str], continues: Sequence[bool]) -> "CharacterEmbed":
        """The embeddings of tokens that are spelled as the words; those that continue a word have no mark of its start.

        A word that is longer than its row loses its end.
        """
        spelling = np.full(self.spelling.shape, PADDING, np.float32)
        for row, (word, is_inner) in enumerate(zip(words, continues, strict=True)):
            characters = [*([] if is_inner else [WORD_START]), *word.encode(errors="replace")]
            characters = [*characters[: spelling.shape[1] - 1], WORD_END]
            spelling[row, : len(characters)] = characters
        return dataclasses.replace(self, spelling=jnp.asarray(spelling))


def specs(options: Characters, config: Config) -> CharacterEmbed:
    """The spec tree of the embeddings; tokens are spelled as their numbers until `spelled` says otherwise."""
    count = sum(count for _, count in options.widths)
    spelling = fixed_spec(config, "Vc", _as_numbers, c=options.length)

    def filters(width: int, count: int) -> Linear:
        kernel = weight_spec(config, "weo", inputs=2, w=width, e=options.size, o=count)
        return Linear(kernel, bias_spec(config, "o", o=count))

    def highway() -> Highway:
        transform, carry = (linear_specs(config, "f", "g", bias=True, f=count, g=count) for _ in range(2))
        bias: ArraySpec = carry.bias
        return Highway(transform, dataclasses.replace(carry, bias=dataclasses.replace(bias, init=constant(CARRY))))

    return CharacterEmbed(
        spelling=dataclasses.replace(spelling, dtype="float32"),
        characters=weight_spec(config, "ke", k=CHARACTERS, e=options.size),
        filters=tuple(filters(*width_and_count) for width_and_count in options.widths),
        highways=tuple(highway() for _ in range(options.highways)),
        projection=linear_specs(config, "f", "U", bias=True, f=count),
        positions=POSITIONS[config.position.name].embed_specs(config.position, config),
        norm=norm_specs(config, "U") if options.norm else None,
    )


def embed(
    call: LayerCall[Characters, CharacterEmbed, None],
    tokens: Array,
    positions: Array | None = None,
    types: Array | None = None,
) -> Array:
    """tokens and positions int32 [B,T] -> [B,T,D], as `tfm.embed` does. Types are not told apart."""
    tables, config = call.params, call.config
    for name, ids in {"tokens": tokens, "positions": positions}.items():
        check_ids(name, ids, tokens)
    spelling = jnp.round(lookup(tables.spelling, tokens)).astype(jnp.int32)
    x = _words(tables, spelling, jnp.dtype(config.dtype)).astype(jnp.float32)
    positions = default_positions(tokens) if positions is None else positions
    x = POSITIONS[config.position.name].embed(LayerCall(config.position, config, tables.positions), x, positions)
    x = x if tables.norm is None else norm(config, tables.norm, x)
    x = dropout(x, config.dropout, call.key).astype(config.dtype)
    return jnp.concatenate([x] * (config.width // x.shape[-1]), axis=-1)


def _words(tables: CharacterEmbed, spelling: Array, dtype: DTypeLike) -> Array:
    """spelling int32 [B,T,c] -> [B,T,U] in the dtype."""
    x = lookup(tables.characters, spelling).astype(dtype)
    features = [_filtered(layer, x) for layer in tables.filters]
    y = jnp.concatenate(features, axis=-1)
    for layer in tables.highways:
        carry = jax.nn.sigmoid(linear(layer.carry, "BTf,fg->BTg", y))
        y = carry * y + (1 - carry) * jax.nn.relu(linear(layer.transform, "BTf,fg->BTg", y))
    return linear(tables.projection, "BTf,fU->BTU", y)


def _filtered(layer: Linear, x: Array) -> Array:
    """x [B,T,c,e] -> [B,T,o]: the maximum of every filter over all places of a word."""
    width, places = kernel_of(layer.kernel).shape[0], x.shape[2]
    windows = [x[:, :, first : places - width + 1 + first] for first in range(width)]
    return jax.nn.relu(linear(layer, "BTcwe,weo->BTco", jnp.stack(windows, axis=3)).max(2))


def _as_numbers(key: Array, shape: tuple[int, ...], sharding: NamedSharding | None) -> Array:
    """[V,c]: the decimal digits of every token, from the last to the first."""
    powers = jnp.minimum(10.0 ** jnp.arange(shape[1], dtype=jnp.float32), 1e9)
    digits = jnp.floor(jnp.arange(shape[0], dtype=jnp.float32)[:, None] / powers[None]) % 10 + ord("0")
    return digits if sharding is None else jax.sharding.reshard(digits, sharding)


INPUT = Input(specs, embed, contents)
