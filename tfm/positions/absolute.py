"""Positions that have a vector each: trained (Devlin et al. 2018), or sines and cosines (Vaswani et al. 2017, section
3.5). Where the vectors go:

added           x + p, once
concatenated    [x; p] W, once
queries_keys    (x + p) Q and (x + p) K in every layer; values know no positions
every_layer     the mixer of every layer reads x + p: queries, keys and values
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.sharding import reshard

from tfm.attention.project import Attention
from tfm.config.model import Config
from tfm.config.positions import IN_LAYERS, Learned, Sinusoidal
from tfm.interfaces import AttentionContext, LayerCall, Position
from tfm.ops import einsum, lookup
from tfm.params import ArraySpec, PyTree, weight_spec
from tfm.positions.grid_axes import places


def table_spec(config: Config) -> ArraySpec:
    """The table [P,U].

    It starts as sinusoids with the variance of other weights: relative positions can be read off it from the first
    step (M33: accuracy 0.161 against 0.155).
    """

    def init(key, shape, sharding):
        waves = config.init_std * 2**0.5 * sinusoidal(jnp.arange(shape[0])[None], shape[1])[0]
        return waves if sharding is None else reshard(waves, sharding)

    return dataclasses.replace(weight_spec(config, "P" + config.embed_axis), init=init)


def absolute_specs(options: Any, config: Config) -> ArraySpec | None:
    """The table [P,U] of a scheme whose option `absolute` asks for one; None for others."""
    return table_spec(config) if options.absolute else None


def embed_absolute(call: LayerCall[Any, Array | None, None], x: Array, positions: Array) -> Array:
    """x [B,T,U] plus the rows of positions [B,T] in that table."""
    return x if call.params is None else x + lookup(call.params, positions)


def learned_embed_specs(options: Learned, config: Config) -> PyTree:
    """What embeddings need."""
    return embed_specs_at(options.place, config, table_spec(config))


def embed_learned(call: LayerCall[Learned, PyTree, None], x: Array, positions: Array) -> Array:
    """x [B,T,U] with the rows of positions [B,T]."""
    return embed_at(call.options.place, call.params, x, partial(lookup, ids=positions))


def learned_shared_specs(options: Learned, config: Config) -> ArraySpec | None:
    """The table of all layers, where they need one."""
    return table_spec(config) if options.place in IN_LAYERS else None


def prepare_learned(call: LayerCall[Learned, Array | None, None], context: AttentionContext) -> Array | None:
    """float32 rows [B,T,D] for all layers."""
    return None if call.params is None else lookup(call.params, context.positions)


def sinusoidal(positions: Array, width: int, order: str = "interleaved") -> Array:
    """positions [B,T] -> float32 [B,T,width], of wavelengths from 2 pi to 10,000 * 2 pi.

    `order` interleaved: sines in even columns and cosines in odd ones; halves: all sines first; fairseq: halves, with
    the longest wavelength itself, and the first token at position 2.
    """
    steps = jnp.arange(0, width, 2, dtype=jnp.float32)
    if order == "fairseq":
        wavelengths, positions = 10_000.0 ** (steps / max(width - 2, 1)), positions + 2
    else:
        wavelengths = 10_000.0 ** (steps / width)
    angles = positions[..., None].astype(jnp.float32) / wavelengths[None, None]
    waves = jnp.sin(angles), jnp.cos(angles)
    if order in ("halves", "fairseq"):
        return jnp.concatenate(waves, axis=-1)[..., :width]
    return jnp.stack(waves, axis=-1).reshape(*positions.shape, -1)[..., :width]


def waves(options: Sinusoidal, config: Config, positions: Array, width: int) -> Array:
    """positions [B,T] -> float32 [B,T,width].

    With two axes the first half tells columns, the second half rows (He et al. 2022, in code); with three the last
    third tells times; a vector that has no place in the image or video has zeros.
    """
    if options.axes == 1:
        return sinusoidal(positions, width, options.order)
    place = places(config, positions)
    by_axis = [sinusoidal(place[..., axis], width // options.axes, options.order) for axis in range(options.axes)]
    return jnp.where(place[..., :1] < 0, 0, jnp.concatenate(by_axis[::-1], axis=-1))


def sinusoidal_embed_specs(options: Sinusoidal, config: Config) -> PyTree:
    """What embeddings need."""
    return embed_specs_at(options.place, config, None)


def embed_sinusoidal(call: LayerCall[Sinusoidal, PyTree, None], x: Array, positions: Array) -> Array:
    """x [B,T,U] with the waves of positions [B,T]."""
    return embed_at(
        call.options.place, call.params, x, lambda _: waves(call.options, call.config, positions, x.shape[-1])
    )


def prepare_sinusoidal(call: LayerCall[Sinusoidal, None, None], context: AttentionContext) -> Array | None:
    """float32 waves [B,T,D] for all layers."""
    if call.options.place not in IN_LAYERS:
        return None
    return waves(call.options, call.config, context.positions, call.config.width)


@struct.dataclass
class Concatenated:
    """The table of positions, None where they need none, and the matrix [c,U] of concatenated vectors."""

    table: Array | None
    kernel: Array


def embed_specs_at(place: str, config: Config, table: ArraySpec | None) -> PyTree:
    """What embeddings need for positions with this table."""
    axis = config.embed_axis
    if place == "concatenated":
        return Concatenated(table, weight_spec(config, "c" + axis, c=2 * config.sizes[axis]))
    return table if place == "added" else None


def embed_at(place: str, params: PyTree, x: Array, rows: Callable[[PyTree], Array]) -> Array:
    """x [B,T,U] and `rows(table)` -> float32 vectors [B,T,U] of positions -> the embeddings [B,T,U]."""
    if place == "concatenated":
        return einsum("BTc,cU->BTU", jnp.concatenate([x, rows(params.table)], axis=-1), params.kernel)
    return x + rows(params) if place == "added" else x


def score_at(call: LayerCall, q: Array, k: Array, projections: Attention) -> tuple[Array, Array, None]:
    """Queries and keys of tokens and their positions, of which `call.prepared` has the vectors [B,T,D], or None."""
    if call.prepared is None or call.options.place != "queries_keys":
        return q, k, None
    rows = call.prepared.astype(q.dtype)
    q = q + einsum("BTD,DKGH->BTKGH", rows, projections.query.kernel)
    return q, k + einsum("BSD,DKH->BSKH", rows, projections.key.kernel), None


def reader_at(call: LayerCall) -> Callable[[Array], Array] | None:
    """x [B,T,D] -> x plus the vectors of positions, where these go to every layer."""
    return (lambda x: x + call.prepared.astype(x.dtype)) if call.options.place == "every_layer" else None


LEARNED = Position(
    learned_embed_specs, embed_learned, learned_shared_specs, prepare=prepare_learned, score=score_at, reader=reader_at
)
SINUSOIDAL = Position(
    sinusoidal_embed_specs, embed_sinusoidal, prepare=prepare_sinusoidal, score=score_at, reader=reader_at
)
