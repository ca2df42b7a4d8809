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
from jax import checkpoint_policies as policies
from jax.ad_checkpoint import checkpoint_name

from tfm import params
from tfm.attention.context import AttentionContext
from tfm.attention.cross import Memory
from tfm.config.model import Config, Kind
from tfm.layers.block import BlockInput, BlockOutput, block_specs, transformer_block
from tfm.mixers import mixer_of
from tfm.ops import Norm, norm, norm_specs
from tfm.positions import position_of
from tfm.residuals import residual_of
from tfm.scopes import layer_scope
from tfm.sharding import gather_sequence, scatter_sequence


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
    norm: the last norm, None where the residual scheme has none
    """

    layers: Layers
    positions: tuple[Any, ...]
    norm: Norm | None


def stack_specs(config: Config, cross: bool = False) -> dict[str, Any]:
    """The spec trees of a stack, by the fields of `Stacked`; with `cross` its blocks attend to a memory too."""
    plan = config.layer_plan
    rows = 1 if config.share_layers else plan.times
    layers = Layers(
        prefix=tuple(block_specs(kind, config, cross) for kind in plan.prefix),
        period=tuple(params.stacked(block_specs(kind, config, cross), rows) for kind in plan.period),
        tail=tuple(block_specs(kind, config, cross) for kind in plan.tail),
    )
    return {
        "layers": layers,
        "positions": tuple(position_of(options).shared_specs(options, config) for options in config.positions),
        "norm": norm_specs(config) if residual_of(config.residual).final_norm else None,
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

    states: decode states to read
    memory: for blocks with cross-attention
    key: turns dropout on
    """
    run = Pass(
        config=config,
        blocks=_blocks(model, config, context, memory),
        params=model.layers,
        states=states,
        memory=None if memory is None else memory.layers,
        noise=None if key is None else (jax.random.split(key, config.layers), drop_path_rates(config, context)),
    )
    x, prefix = _unstacked(run, "prefix", scatter_sequence(x), 0)
    x, period = _repeated(run, x)
    x, tail = _unstacked(run, "tail", x, config.layers - len(model.layers.tail))
    with jax.named_scope("norm"):
        x = gather_sequence(x if model.norm is None else norm(config, model.norm, x))
    return x, Layers(prefix, period, tail)


def by_layer(config: Config, outputs: Layers) -> list[Any]:
    """The trees of all layers in order, out of `Layers` whose leaves have a row for each repetition."""
    repetitions = zip(*(unstack(tree, config.layer_plan.times) for tree in outputs.period), strict=True)
    prefix, tail = ([unstack(tree, 1)[0] for tree in trees] for trees in (outputs.prefix, outputs.tail))
    return [*prefix, *(tree for trees in repetitions for tree in trees), *tail]


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


def unstack(tree: Any, rows: int) -> list[Any]:
    """A tree whose leaves have rows -> a tree a row. Its gradient is one concatenation; that of indexing adds padded
    copies."""
    leaves, structure = jax.tree.flatten(tree)
    columns = [jnp.unstack(leaf) for leaf in leaves]
    return [jax.tree.unflatten(structure, [column[row] for column in columns]) for row in range(rows)]


# What the backward pass reads of each block, by `config.remat`, from the fastest to the smallest; the rest is computed
# again. Products without a batch axis are those with weights: attention scores are not kept, nor are activations and
# dropout masks. The inputs of blocks are always needed; they may wait in the host's memory (Chen et al. 2016,
# section 4; Rajbhandari et al. 2020, section 6.1). XLA for CPU undoes recomputation where layers are not scanned.
REMAT: dict[str, Callable[..., Callable]] = {
    "none": lambda function, prevent_cse: function,
    "dots": partial(jax.checkpoint, policy=policies.dots_with_no_batch_dims_saveable),
    "block": jax.checkpoint,
    "offload": partial(
        jax.checkpoint,
        policy=policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=["block input"],
            offload_src="device",
            offload_dst="pinned_host",
        ),
    ),
}


class Pass(NamedTuple):
    """One pass through a stack.

    blocks: for each kind of layer, (layer, x, state, keys and values of a memory, noise) -> x, output
    params, states, memory: those of all layers; the last two may be None
    noise: the keys of dropout and the rates of stochastic depth, one a layer; or None
    """

    config: Config
    blocks: dict[Kind, Callable]
    params: Layers
    states: Layers | None
    memory: Layers | None
    noise: tuple[Array, Array | None] | None

    def inputs(self, part: str) -> tuple[tuple, tuple]:
        """The states and memories of the layers of a part, None where there are none."""
        nothing = (None,) * len(getattr(self.params, part))
        states, memory = (nothing if trees is None else getattr(trees, part) for trees in (self.states, self.memory))
        return states, memory


def _blocks(model: Stacked, config: Config, context: AttentionContext, memory: Memory | None) -> dict[Kind, Callable]:
    """The block of each kind of layer, with what the layers of a kind share: that is made here, once a pass."""
    positions = {
        options: position_of(options).prepare(shared, options, config, context)
        for options, shared in zip(config.positions, model.positions, strict=True)
    }

    def block_of(kind: Kind) -> Callable:
        mixer = mixer_of(kind.mixer).prepare(kind.mixer, config, context)

        def block(layer, x, state, keys_values, noise) -> tuple[Array, BlockOutput]:
            cross = None if memory is None else memory.of_layer(keys_values)
            key, drop_path = (None, None) if noise is None else noise
            block_input = BlockInput(context, mixer, positions[kind.position], state, cross, drop_path)
            return transformer_block(layer, kind, config, checkpoint_name(x, "block input"), block_input, key)

        return REMAT[config.remat](block, prevent_cse=not config.scan)

    return {kind: block_of(kind) for kind in config.kinds}


def drop_path_rates(config: Config, context: AttentionContext) -> Array | None:
    """float32 [L], the rates at which examples skip a sublayer of each layer; they grow over all stages of a model."""
    if not config.drop_path:
        return None
    before, after = context.layers_around
    last = max(1, before + config.layers + after - 1)
    return config.drop_path / last * (before + jnp.arange(config.layers, dtype=jnp.float32))


def _unstacked(run: Pass, part: str, x: Array, first: int) -> tuple[Array, tuple]:
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


def _repeated(run: Pass, x: Array) -> tuple[Array, tuple]:
    """x through all repetitions of the period, scanned or unrolled over the same leaves."""
    config, plan = run.config, run.config.layer_plan
    if not plan.period:
        return x, ()
    shared = [unstack(tree, 1)[0] for tree in run.params.period] if config.share_layers else None
    first, size = len(plan.prefix), len(plan.period)
    end = first + plan.times * size
    noise = tuple(
        jax.tree.map(lambda rows, start=first + index: rows[start:end:size], run.noise) for index in range(size)
    )
    rows = (None if shared else run.params.period, *run.inputs("period"), noise)

    def period(x, row, start=first, step=size):
        layers, *inputs = row
        outputs = []
        rows = zip(plan.period, shared or layers, *inputs, strict=True)
        for index, (kind, layer, state, keys_values, noise) in enumerate(rows):
            with layer_scope(start + index, step):
                x, output = run.blocks[kind](layer, x, state, keys_values, noise)
            outputs.append(output)
        return x, tuple(outputs)

    if config.scan:
        return jax.lax.scan(period, x, rows, plan.times)
    outputs = []
    for start, row in zip(range(first, end, size), unstack(rows, plan.times), strict=True):
        x, output = period(x, row, start, 0)
        outputs.append(output)
    return x, jax.tree.map(lambda *leaves: jnp.stack(leaves), *outputs)
