"""What the layers of a stack share in one pass, by what it depends on."""

from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from tfm.attention.cross import Memory
from tfm.config.model import Config, Kind
from tfm.interfaces import AttentionContext, LayerCall
from tfm.layers.block import BlockInput
from tfm.tables.mixers import MIXERS
from tfm.tables.positions import POSITIONS


class Shared(NamedTuple):
    """What layers share that depends on no parameter.

    mixers: by the order of `config.kinds`, what their `prepare` made
    positions: by the order of `config.positions`, what their `prepare` made; None for those with parameters
    memory: without its layers
    """

    context: AttentionContext
    mixers: tuple[Any, ...]
    positions: tuple[Any, ...]
    memory: Memory | None


def shared_inputs(
    parameters: tuple[Any, ...], config: Config, context: AttentionContext, memory: Memory | None
) -> tuple[tuple[Any, ...], Shared]:
    """What layers share, made once a pass: that of positions with parameters, and the rest.

    parameters: of positions, by the order of `config.positions`
    """
    positions = [
        POSITIONS[options.name].prepare(LayerCall(options, config, shared), context)
        for options, shared in zip(config.positions, parameters, strict=True)
    ]
    has_parameters = [shared is not None for shared in parameters]
    trained = tuple(prepared if has else None for prepared, has in zip(positions, has_parameters, strict=True))
    plain = tuple(None if has else prepared for prepared, has in zip(positions, has_parameters, strict=True))
    mixers = tuple(MIXERS[kind.mixer.name].prepare(LayerCall(kind.mixer, config), context) for kind in config.kinds)
    return trained, Shared(context, mixers, plain, None if memory is None else replace(memory, layers=None))


def block_input(
    kind: Kind,
    config: Config,
    trained: tuple[Any, ...],
    shared: Shared,
    state: Any,
    keys_values: Any,
    drop_path: Array | None,
) -> BlockInput:
    """What a block of a kind reads beside x."""
    place = config.positions.index(kind.position)
    position = shared.positions[place] if trained[place] is None else trained[place]
    cross = None if shared.memory is None else shared.memory.of_layer(keys_values)
    return BlockInput(shared.context, shared.mixers[config.kinds.index(kind)], position, state, cross, drop_path)


def drop_path_rates(config: Config, context: AttentionContext) -> Array | None:
    """float32 [L], the rates at which examples skip a sublayer of each layer; they grow over all stages of a model."""
    if not config.drop_path:
        return None
    before, after = context.layers_around
    last = max(1, before + config.layers + after - 1)
    return config.drop_path / last * (before + jnp.arange(config.layers, dtype=jnp.float32))
