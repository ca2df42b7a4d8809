"""A stack of blocks: a prefix, and a period of kinds of layers that is repeated.

    layers      0        1 2 3   4 5 6   7 8
    kinds       p        a b c   a b c   a b
                prefix   period, twice   tail

The leaves of the period are stacked along a first axis, one row a repetition, and scanned, or unrolled over the same
leaves. Prefix and tail have leaves of their own: a slice of stacked leaves would be copied at every step. What a kind
of layer sees is static, so that its kernel can use it. With one kind this is the plain scan over layers.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm import params
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, Memory
from tfm.layers.block import block_specs
from tfm.layers.groups import Group, run_group, unstack
from tfm.norms import Norm, norm, norm_specs
from tfm.residuals import output_axis
from tfm.sharding import gather_sequence, scatter_sequence
from tfm.tables.loops import LOOPS
from tfm.tables.mixers import MIXERS
from tfm.tables.positions import POSITIONS
from tfm.tables.residuals import RESIDUALS


@struct.dataclass
class Layers:
    """A tree for each layer of the prefix and the tail, and one for each kind of the period, its leaves stacked [times,
    ...].

    Parameters, decode states, memories and outputs of layers all have this form. Only parameters of prefix and tail
    lack the first axis; everywhere else it has one row there.
    """

    prefix: tuple[Any, ...]
    period: tuple[Any, ...]
    tail: tuple[Any, ...]


class Stacked(Protocol):
    """Parameters of a stack.

    layers: its blocks
    positions: what layers with the same position options share, in the order of `config.positions`
    norm: the last norm, None where the residual scheme or its options have none
    """

    layers: Layers
    positions: tuple[Any, ...]
    norm: Norm | None


def stack_specs(config: Config, cross: bool = False) -> dict[str, Any]:
    """The spec trees of a stack, by the fields of `Stacked`; with `cross` its blocks attend to a memory too."""
    plan, blocks = config.layer_plan, partial(block_specs, config=config, cross=cross)
    period = params.stacked(tuple(map(blocks, plan.period)), 1 if config.share_layers else plan.times)
    axis, sizes = output_axis(config)
    has_final_norm = RESIDUALS[config.residual.name].final_norm and getattr(config.residual, "final_norm", True)
    return {
        "layers": Layers(tuple(map(blocks, plan.prefix)), period, tuple(map(blocks, plan.tail))),
        "positions": tuple(POSITIONS[options.name].shared_specs(options, config) for options in config.positions),
        "norm": norm_specs(config, axis, **sizes) if has_final_norm else None,
    }


def stack(
    model: Stacked,
    config: Config,
    x: Array,
    context: AttentionContext,
    states: Layers | None = None,
    memory: Memory | None = None,
    key: Array | None = None,
    drop_path: Array | None = None,
) -> tuple[Array, Layers]:
    """x [B,T,D] -> [B,T,D], and the `BlockOutput` of every layer (see `by_layer`).

    states: decode states to read
    memory: for blocks with cross-attention
    key: turns dropout on
    drop_path: float32 [L], the rates of stochastic depth; None: those of `drop_path_rates`
    """
    context = prepare_layers(context, config, model.positions, memory)
    noise = None
    if key is not None:
        rates = drop_path_rates(config)[0] if drop_path is None else drop_path
        noise = jax.random.split(key, config.layers), rates
    groups = groups_of(model.layers, config, states, None if memory is None else memory.layers, noise)
    x, outputs, loop = scatter_sequence(x), [], LOOPS.get(config.residual.name)
    if loop is not None:
        x, outputs = loop(groups, config, x, context, model.positions)
    else:
        for group in groups:
            x, output = run_group(group, config, x, context)
            outputs.append(output)
    with jax.named_scope("norm"):
        x = gather_sequence(x if model.norm is None else norm(config, model.norm, x))
    return x, Layers(*outputs)


def prepare_layers(
    context: AttentionContext,
    config: Config,
    parameters: tuple[Any, ...] | None = None,
    memory: Memory | None = None,
) -> AttentionContext:
    """The context of a pass, with what its layers share: what their mixers and positions prepare, and a memory.

    parameters: of positions, in the order of `config.positions`; None: no layers share some
    """
    parameters = (None,) * len(config.positions) if parameters is None else parameters
    positions, prepared = [], []
    for options, shared in zip(config.positions, parameters, strict=True):
        positions.append(POSITIONS[options.name].prepare(LayerCall(options, config, shared, None), context))
    for kind in config.kinds:
        mixer = MIXERS[kind.mixer.name].prepare(LayerCall(kind.mixer, config), context)
        prepared.append((mixer, positions[config.positions.index(kind.position)]))
    return replace(context, prepared=tuple(prepared), memory=None if memory is None else replace(memory, layers=None))


def drop_path_rates(config: Config) -> list[Array | None]:
    """By stage of a model, float32 [L]: the rates at which examples skip a sublayer of each layer; they grow over all
    stages. None without stochastic depth."""
    sizes = [stage.layers for stage in config.stage_configs]
    if not config.drop_path:
        return [None] * len(sizes)
    step = config.drop_path / max(1, sum(sizes) - 1)
    return [step * (sum(sizes[:index]) + jnp.arange(size, dtype=jnp.float32)) for index, size in enumerate(sizes)]


def groups_of(
    layers: Layers,
    config: Config,
    states: Layers | None,
    keys_values: Layers | None,
    noise: tuple[Array, Array | None] | None,
) -> list[Group]:
    """The prefix, the period and the tail.

    keys_values: of a memory
    noise: a key for each layer, and the rates of stochastic depth
    """
    plan, groups = config.layer_plan, []
    end = config.layers - len(plan.tail)
    for part, first in {"prefix": 0, "period": len(plan.prefix), "tail": end}.items():
        kinds, params, inputs = getattr(plan, part), getattr(layers, part), []
        for trees in (states, keys_values):
            inputs.append((None,) * len(kinds) if trees is None else getattr(trees, part))
        indices = range(first, first + len(kinds))
        if part == "period":
            keys = tuple(jax.tree.map(itemgetter(slice(index, end, len(kinds))), noise) for index in indices)
            own, shared = (None, params) if config.share_layers else (params, None)
            groups.append(Group(kinds, plan.times, first, (own, *inputs, keys), shared))
        else:
            keys = tuple(jax.tree.map(itemgetter(index), noise) for index in indices)
            single = [tuple(unstack(tree, 1)[0] for tree in trees) for trees in inputs]
            groups.append(Group(kinds, None, first, (params, *single, keys)))
    return groups


def by_layer(config: Config, outputs: Layers) -> list[Any]:
    """The trees of all layers in order, out of `Layers` whose leaves have a row for each repetition."""
    repetitions = zip(*(unstack(tree, config.layer_plan.times) for tree in outputs.period), strict=True)
    prefix, tail = ([unstack(tree, 1)[0] for tree in trees] for trees in (outputs.prefix, outputs.tail))
    return [*prefix, *(tree for trees in repetitions for tree in trees), *tail]


def states_of(outputs: Layers) -> Layers:
    """What mixers put into states, out of the outputs of blocks."""
    parts = outputs.prefix, outputs.period, outputs.tail
    prefix, period, tail = (tuple(map(attrgetter("state"), part)) for part in parts)
    return Layers(prefix, period, tail)


def layer_indices(specs: Layers) -> dict[str, list[tuple[int, ...]]]:
    """By part of the stack: for each of its trees, the layer of every row."""
    first, size = len(specs.prefix), len(specs.period)
    times = jax.tree.leaves(specs.period)[0].shape[0] if size else 0
    end = first + times * size
    return {
        "prefix": [*zip(range(first))],
        "period": [tuple(range(first + index, end, size)) for index in range(size)],
        "tail": [*zip(range(end, end + len(specs.tail)))],
    }


def map_layers(function: Callable[[Any], Any], config: Config, layers: Layers) -> Layers:
    """A function of the parameters of one layer, applied to all; results have a row for each repetition."""

    def rows(trees: list[Any]) -> Any:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(function, trees))

    times, shared = config.layer_plan.times, config.share_layers
    period = tuple(rows(unstack(tree, 1) * times if shared else unstack(tree, times)) for tree in layers.period)
    return Layers(tuple(rows([tree]) for tree in layers.prefix), period, tuple(rows([tree]) for tree in layers.tail))
