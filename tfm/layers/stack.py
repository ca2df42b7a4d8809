"""A stack of blocks: a prefix, and a period of kinds of layers that is repeated.

    layers      0        1 2 3   4 5 6   7 8
    kinds       p        a b c   a b c   a b
                prefix   period, twice   tail

The leaves of the period are stacked along a first axis, one row a repetition, and scanned, or unrolled over the same
leaves. Prefix and tail have leaves of their own: a slice of stacked leaves would be copied at every step. What a kind
of layer sees is static, so that its kernel can use it. With one kind this is the plain scan over layers.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from tfm import params
from tfm.attention.cross import Memory
from tfm.config.model import Config, Kind
from tfm.interfaces import SUBLAYERS, AttentionContext, BlockOutput
from tfm.layers.block import block_specs, sublayers_of, transformer_block
from tfm.layers.remat import REMAT
from tfm.layers.reverse import ReversibleLayers, run_reversible
from tfm.layers.rows import unstack
from tfm.layers.shared import Shared, block_input, drop_path_rates, shared_inputs
from tfm.norms import Norm, norm, norm_specs
from tfm.residuals import output_axis
from tfm.scopes import layer_scope
from tfm.sharding import gather_sequence, scatter_sequence
from tfm.tables.positions import POSITIONS
from tfm.tables.residuals import RESIDUALS, has_final_norm


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
    plan = config.layer_plan
    rows = 1 if config.share_layers else plan.times
    axis, sizes = output_axis(config)
    layers = Layers(
        prefix=tuple(block_specs(kind, config, cross) for kind in plan.prefix),
        period=tuple(params.stacked(block_specs(kind, config, cross), rows) for kind in plan.period),
        tail=tuple(block_specs(kind, config, cross) for kind in plan.tail),
    )
    return {
        "layers": layers,
        "positions": tuple(POSITIONS[options.name].shared_specs(options, config) for options in config.positions),
        "norm": norm_specs(config, axis, **sizes) if has_final_norm(config) else None,
    }


def stack(
    model: Stacked,
    config: Config,
    x: Array,
    context: AttentionContext,
    states: Layers | None = None,
    memory: Memory | None = None,
    key: Array | None = None,
) -> tuple[Array, Layers]:
    """x [B,T,D] -> [B,T,D], and the `BlockOutput` of every layer (see `by_layer`).

    states: decode states to read, or states of the segment before
    memory: for blocks with cross-attention
    key: turns dropout on
    """
    trained, constants = shared_inputs(model.positions, config, context, memory)
    run = Pass(
        config=config,
        trained=trained,
        constants=constants,
        blocks=_blocks(config, trained, constants),
        params=model.layers,
        states=states,
        memory=None if memory is None else memory.layers,
        noise=None if key is None else (jax.random.split(key, config.layers), drop_path_rates(config, context)),
    )
    residual = RESIDUALS[config.residual.name]
    x, prefix = _unstacked(run, "prefix", residual.start(config.residual, config, scatter_sequence(x)), 0)
    x, period = _repeated(run, x)
    x, tail = _unstacked(run, "tail", x, config.layers - len(model.layers.tail))
    x = residual.finish(config.residual, config, x)
    with jax.named_scope("norm"):
        x = gather_sequence(x if model.norm is None else norm(config, model.norm, x))
    return x, Layers(prefix, period, tail)


def by_layer(config: Config, outputs: Layers) -> list[Any]:
    """The trees of all layers in order, out of `Layers` whose leaves have a row for each repetition."""
    repetitions = zip(*(unstack(tree, config.layer_plan.times) for tree in outputs.period), strict=True)
    prefix, tail = ([unstack(tree, 1)[0] for tree in trees] for trees in (outputs.prefix, outputs.tail))
    return [*prefix, *(tree for trees in repetitions for tree in trees), *tail]


def states_of(outputs: Layers) -> Layers:
    """What mixers put into states, out of the outputs of blocks."""
    parts = ([output.state for output in part] for part in (outputs.prefix, outputs.period, outputs.tail))
    return Layers(*map(tuple, parts))


def layer_indices(specs: Layers) -> dict[str, list[tuple[int, ...]]]:
    """By part of the stack: for each of its trees, the layer of every row."""
    first, size = len(specs.prefix), len(specs.period)
    times = jax.tree.leaves(specs.period)[0].shape[0] if size else 0
    end = first + times * size
    return {
        "prefix": [(index,) for index in range(first)],
        "period": [tuple(range(first + index, end, size)) for index in range(size)],
        "tail": [(end + index,) for index in range(len(specs.tail))],
    }


def map_layers(function: Callable[[Any], Any], config: Config, layers: Layers) -> Layers:
    """A function of the parameters of one layer, applied to all; results have a row for each repetition."""

    def rows(trees: list[Any]) -> Any:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(function, trees))

    times, shared = config.layer_plan.times, config.share_layers
    period = tuple(rows(unstack(tree, 1) * times if shared else unstack(tree, times)) for tree in layers.period)
    return Layers(tuple(rows([tree]) for tree in layers.prefix), period, tuple(rows([tree]) for tree in layers.tail))


class Pass(NamedTuple):
    """One pass through a stack.

    trained, constants: what layers share, with parameters and without
    blocks: for each kind of layer, (layer, x, state, keys and values of a memory, noise) -> x, output
    params, states, memory: those of all layers; the last two may be None
    noise: the keys of dropout and the rates of stochastic depth, one a layer; or None
    """

    config: Config
    trained: tuple[Any, ...]
    constants: Shared
    blocks: dict[Kind, Callable]
    params: Layers
    states: Layers | None
    memory: Layers | None
    noise: tuple[Array, Array | None] | None

    @property
    def reverses(self) -> bool:
        """Whether a backward pass computes what layers have read; not where layers return more than x."""
        context = self.constants.context
        returns_more = context.keep or context.record or context.record_inputs or context.record_branches
        return RESIDUALS[self.config.residual.name].reverse is not None and self.states is None and not returns_more

    @property
    def shared_layers(self) -> tuple[Any, ...] | None:
        """The parameters of a period that all repetitions share; None where each has its own."""
        return self.params.period if self.config.share_layers else None

    def inputs(self, part: str) -> tuple[tuple, tuple]:
        """The states and memories of the layers of a part, None where there are none."""
        nothing = (None,) * len(getattr(self.params, part))
        states, memory = (nothing if trees is None else getattr(trees, part) for trees in (self.states, self.memory))
        return states, memory


def _blocks(config: Config, trained: tuple[Any, ...], shared: Shared) -> dict[Kind, Callable]:
    """The block of each kind of layer, with what layers share."""

    def block_of(kind: Kind) -> Callable:
        def block(layer, x, state, keys_values, noise) -> tuple[Any, BlockOutput]:
            key, drop_path = noise or (None, None)
            inputs = block_input(kind, config, trained, shared, state, keys_values, drop_path)
            return transformer_block(layer, kind, config, checkpoint_name(x, "block input"), inputs, key)

        return REMAT[config.remat](block, prevent_cse=not config.scan)

    return {kind: block_of(kind) for kind in config.kinds}


def _unstacked(run: Pass, part: str, x: Any, first: int) -> tuple[Any, tuple]:
    """x through the prefix or the tail, whose first layer is layer `first` of the model."""
    outputs = []
    kinds, layers = getattr(run.config.layer_plan, part), getattr(run.params, part)
    for index, (kind, layer, *inputs) in enumerate(zip(kinds, layers, *run.inputs(part), strict=True)):
        state, keys_values = (unstack(tree, 1)[0] for tree in inputs)
        noise = jax.tree.map(lambda rows, layer=first + index: rows[layer], run.noise)
        with layer_scope(first + index):
            x, output = run.blocks[kind](layer, x, state, keys_values, noise)
        outputs.append(jax.tree.map(lambda leaf: leaf[None], output))
    return x, tuple(outputs)


def _repeated(run: Pass, x: Any) -> tuple[Any, tuple]:
    """x through all repetitions of the period, scanned or unrolled over the same leaves."""
    if not run.config.layer_plan.period:
        return x, ()
    if run.reverses:
        return _reversibly_repeated(run, x), (BlockOutput(),) * len(run.config.layer_plan.period)
    return _loop(run.config, run.blocks, x, _period_rows(run), run.shared_layers)


def _loop(config: Config, blocks: dict[Kind, Callable], x: Any, rows: tuple, shared: Any) -> tuple[Any, tuple]:
    """x through rows of the period; `shared` are the parameters of layers that share them."""
    plan = config.layer_plan
    shared = None if shared is None else [unstack(tree, 1)[0] for tree in shared]
    first, size = len(plan.prefix), len(plan.period)

    def period(x, row, start=first, step=size):
        layers, *inputs = row
        outputs = []
        kinds = zip(plan.period, shared or layers, *inputs, strict=True)
        for index, (kind, layer, state, keys_values, noise) in enumerate(kinds):
            with layer_scope(start + index, step):
                x, output = blocks[kind](layer, x, state, keys_values, noise)
            outputs.append(output)
        return x, tuple(outputs)

    if config.scan:
        return jax.lax.scan(period, x, rows, plan.times)
    outputs = []
    for start, row in zip(range(first, first + plan.times * size, size), unstack(rows, plan.times), strict=True):
        x, output = period(x, row, start, 0)
        outputs.append(output)
    return x, jax.tree.map(lambda *leaves: jnp.stack(leaves), *outputs)


def _period_rows(run: Pass) -> tuple:
    """Parameters, states, memories and noise of the layers of the period; None where there are none."""
    plan = run.config.layer_plan
    first, size = len(plan.prefix), len(plan.period)
    end = first + plan.times * size
    noise = tuple(
        jax.tree.map(lambda rows, start=first + index: rows[start:end:size], run.noise) for index in range(size)
    )
    return (None if run.config.share_layers else run.params.period, *run.inputs("period"), noise)


def _reversibly_repeated(run: Pass, x: Any) -> Any:
    """The same for a residual scheme with a `Reverse`, whose backward pass stores nothing of single layers."""
    config, plan = run.config, run.config.layer_plan

    def forward(x, rows, shared, constants):
        layers, trained = shared
        return _loop(config, _blocks(config, trained, constants), x, rows, layers)[0]

    def evaluate(index: int, name: str, x, row, shared, constants):
        layers, state, memory, noise = row
        layer = unstack(shared[0][index], 1)[0] if layers is None else layers[index]
        kind = plan.period[index]
        key, drop_path = noise[index] or (None, None)
        inputs = block_input(kind, config, shared[1], constants, state[index], memory[index], drop_path)
        sublayer = sublayers_of(layer, kind, config, inputs, key)[name]
        reverse: Any = RESIDUALS[kind.residual.name].reverse
        return reverse.evaluate(layer.residual, kind.residual, config, name, x, sublayer)

    def invert(y, cotangent, pull):
        for index, kind in reversed(list(enumerate(plan.period))):
            names = [name for name in SUBLAYERS if name != "cross" or run.params.period[index].cross is not None]

            def pull_sublayer(name, x, cotangent, index=index):
                return pull(partial(evaluate, index, name), x, cotangent)

            reverse: Any = RESIDUALS[kind.residual.name].reverse
            y, cotangent = reverse.invert(names, pull_sublayer, y, cotangent)
        return y, cotangent

    layers = ReversibleLayers(forward, invert, plan.times, config.scan)
    return run_reversible(layers, x, _period_rows(run), (run.shared_layers, run.trained), run.constants)
