"""A trained vector for each position (Devlin et al. 2018)."""

import dataclasses
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.sharding import reshard

from tfm.config.model import Config
from tfm.config.positions import Learned
from tfm.interfaces import AttentionContext, LayerCall, Position
from tfm.ops import lookup
from tfm.params import weight_spec
from tfm.positions.absolute import embed_at, embed_specs_at, score_at
from tfm.positions.sinusoidal import sinusoidal


def table_spec(config: Config) -> Any:
    """The table [P,U].

    It starts as sinusoids with the variance of other weights: relative positions can be read off it from the first
    step (M33: accuracy 0.161 against 0.155).
    """

    def init(key, shape, sharding):
        waves = config.init_std * 2**0.5 * sinusoidal(jnp.arange(shape[0])[None], shape[1])[0]
        return waves if sharding is None else reshard(waves, sharding)

    return dataclasses.replace(weight_spec(config, "P" + config.embed_axis), init=init)


def absolute_specs(options: Any, config: Config) -> Any:
    """The table [P,U] of a scheme whose option `absolute` asks for one; None for others."""
    return table_spec(config) if options.absolute else None


def embed_absolute(call: LayerCall[Any, Array | None, None], x: Array, positions: Array) -> Array:
    """x [B,T,U] plus the rows of positions [B,T] in that table."""
    return x if call.params is None else x + lookup(call.params, positions)


def embed_specs(options: Learned, config: Config) -> Any:
    """What embeddings need."""
    return embed_specs_at(options.place, config, table_spec(config))


def embed(call: LayerCall[Learned, Any, None], x: Array, positions: Array) -> Array:
    """x [B,T,U] with the rows of positions [B,T]."""
    return embed_at(call.options.place, call.params, x, partial(lookup, ids=positions))


def shared_specs(options: Learned, config: Config) -> Any:
    """The table of all layers, where queries and keys need one."""
    return table_spec(config) if options.place == "queries_keys" else None


def prepare(call: LayerCall[Learned, Array | None, None], context: AttentionContext) -> Array | None:
    """float32 rows [B,T,D] for queries and keys."""
    return None if call.params is None else lookup(call.params, context.positions)


POSITION = Position(embed_specs, embed, shared_specs, prepare=prepare, score=score_at)
