"""The loop around reversible layers, whose backward pass stores nothing of single layers (Gomez et al. 2017, algorithm
1; Kitaev et al. 2020, section 3)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from jax import Array

from tfm.catalogue.options.residuals import Reversible
from tfm.catalogue.residuals.reverse import ReversibleLayers, run_reversible
from tfm.catalogue.residuals.reversible import Streams, added, finish, invert, start
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, BlockOutput
from tfm.layers.block import sublayers_of
from tfm.layers.groups import Group, run_group, unstack
from tfm.params import PyTree
from tfm.residuals import SUBLAYERS

Trees = tuple[PyTree, ...]


def run(
    groups: list[Group], config: Config, x: Array, context: AttentionContext, parameters: Trees
) -> tuple[Array, list[tuple[BlockOutput, ...]]]:
    """x [B,T,D] through all groups -> [B,T,D], or [B,T,o] of twice the width, and the outputs of the groups.

    Layers that return more than streams are stored as others are. `parameters` are those of positions.
    """
    options, streams, outputs = config.residual, start(x), []
    assert isinstance(options, Reversible), "all layers have this scheme"
    returns_more = context.keep or context.record or context.record_inputs
    for group in groups:
        if group.times and not returns_more and all(state is None for state in group.rows[1]):
            streams = _reversibly(group, config, streams, context, parameters)
            output: tuple[BlockOutput, ...] = (BlockOutput(),) * len(group.kinds)
        else:
            streams, output = run_group(group, config, streams, context)
        if context.record_inputs:
            output = tuple(replace(block, inputs=finish(options, config, block.inputs)) for block in output)
        outputs.append(output)
    return finish(options, config, streams), outputs


def _reversibly(
    group: Group, config: Config, streams: Streams, context: AttentionContext, parameters: Trees
) -> Streams:
    """Streams through a group of layers. What positions prepare of parameters has gradients, all else has none."""
    place = [config.positions.index(kind.position) for kind in config.kinds]
    trained: list[PyTree] = [None] * len(parameters)
    for (_, position), index in zip(context.prepared, place, strict=True):
        trained[index] = None if parameters[index] is None else position

    def joined(positions: Sequence[PyTree], constants: AttentionContext) -> AttentionContext:
        parts = zip(constants.prepared, place, strict=True)
        pairs = ((mixer, rest if parameters[n] is None else positions[n]) for (mixer, rest), n in parts)
        return replace(constants, prepared=tuple(pairs))

    constants = joined([None] * len(parameters), context)

    def forward(x: Streams, rows: Trees, shared: Trees, constants: AttentionContext) -> Streams:
        return run_group(group._replace(rows=rows, shared=shared[0]), config, x, joined(shared[1], constants))[0]

    def evaluate(index: int, name: str, x: Array, row: Trees, shared: Trees, constants: AttentionContext) -> Array:
        params, *inputs = row
        layer = unstack(shared[0][index], 1)[0] if params is None else params[index]
        of_layer = (by_kind[index] for by_kind in inputs)
        sublayers = sublayers_of(layer, group.kinds[index], config, joined(shared[1], constants), *of_layer)
        return added(layer.residual, config, name, x, sublayers[name])[0]

    def invert_row(y: Streams, cotangent: Streams, pull: Callable[..., tuple[Array, Array]]) -> tuple[Streams, Streams]:
        blocks = group.rows[0] if group.shared is None else group.shared
        for index in reversed(range(len(group.kinds))):
            names = [name for name in SUBLAYERS if name != "cross" or blocks[index].cross is not None]

            def pull_sublayer(name: str, x: Array, cotangent: Array, index: int = index) -> tuple[Array, Array]:
                return pull(partial(evaluate, index, name), x, cotangent)

            y, cotangent = invert(names, pull_sublayer, y, cotangent)
        return y, cotangent

    layers = ReversibleLayers(forward, invert_row, group.times or 1, config.scan)
    return run_reversible(layers, streams, group.rows, (group.shared, tuple(trained)), constants)
