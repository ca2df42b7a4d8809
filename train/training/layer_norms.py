"""How strongly each layer learns: norms of gradients and updates, and of what sublayers add to the stream.

They are those of the first part of a batch, without dropout, beside the step and not in it (`--log.layers`).
"""

import collections
import dataclasses
from collections.abc import Callable, Iterator
from typing import cast

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from tfm.layers.block import BLOCK_INPUT
from tfm.layers.stack import layer_indices
from tfm.models.encoder import Encoder
from tfm.params import PyTree
from tfm.residuals import BRANCH
from train.losses.loss import objective
from train.runs.state import State
from train.training import stochastic_rounding
from train.training.job import Job, extra_of_state
from train.training.phases import PhaseJobs
from train.training.step import run_numbers, split_params

# Begins the names of these metrics: layers/grad_norm/encoder.0.mixer.
PREFIX = "layers/"

# The sublayers of a block by their count (`tfm.residuals.SUBLAYERS`).
_SUBLAYERS = {1: ("mixer",), 2: ("mixer", "feed_forward"), 3: ("mixer", "cross", "feed_forward")}


class LayerNorms:
    """The programs that measure layers: one for each job of a run."""

    def __init__(self):
        self._programs: dict[int, Callable[..., dict[str, Array]]] = {}

    def metrics(self, phases: PhaseJobs, step: int, state: State) -> dict[str, float]:
        """Those of the state after a step, where they are due; by the batch of the next step.

        `grad_norm` and `update_norm` are by layer and kind of parameters: before clipping, and behind the optimizer.
        `branch` is the norm of what a sublayer adds over that of what its block reads; blocks count as they run.
        """
        run = phases.job.run
        if run.log.layers is None or step % run.log.layers or step >= run.steps:
            return {}
        job = (phase := phases.at_step(step)).job
        program = self._programs.setdefault(id(job), jax.jit(lambda *inputs: _measure(job, *inputs)))
        fields = jax.tree.map(lambda leaf: leaf[0], phase.batch(step))
        values = jax.device_get(program(state, fields))
        return {f"{PREFIX}{name}": float(value) for name, value in values.items()}


def _measure(job: Job, state: State, fields: dict[str, Array]) -> dict[str, Array]:
    """The norms by name, float32."""
    numbers = state.numbers or run_numbers(job.optimizer, jax.random.key(job.run.seed))
    trained, frozen = split_params(job.optimizer, state, jax.random.wrap_key_data(numbers.key))
    extra = extra_of_state(state)

    def mean(trained: PyTree, job: Job = job) -> Array:
        outputs = job.loss(job.optimizer.join(trained, frozen), fields, None, extra)
        return objective(outputs) / jnp.maximum(outputs["weight"], 1)

    gradients = stochastic_rounding.widen(jax.grad(mean)(trained))
    wide_params, wide_opt = stochastic_rounding.widen((trained, state.opt))
    updates, _ = job.optimizer.update(gradients, wide_opt, wide_params, numbers.rates)
    norms = {f"grad_norm/{name}": value for name, value in _norms(job.specs, gradients).items()}
    norms |= {f"update_norm/{name}": value for name, value in _norms(job.specs, updates).items()}
    model = dataclasses.replace(job.run.model, scan=False, remat="none")
    unrolled = dataclasses.replace(job, run=dataclasses.replace(job.run, model=model))
    return norms | {f"branch/{name}": value for name, value in _branches(lambda: mean(trained, unrolled)).items()}


def _norms(specs: PyTree, tree: PyTree) -> dict[str, Array]:
    """The norm of every part of a tree like the parameters: encoder.embed, encoder.0.mixer, encoder.norm, head."""
    names = _names(specs)
    squares: dict[str, Array] = collections.defaultdict(lambda: jnp.zeros((), jnp.float32))
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        key = jax.tree_util.keystr(path)
        stem = next((stem for stem in names if key.startswith(stem)), None)
        if stem is None:
            squares[key.split(".")[1].partition("[")[0]] += jnp.square(leaf.astype(jnp.float32)).sum()
            continue
        name, layers = names[stem]
        kind = key.removeprefix(stem).split(".")[1] if layers else ""
        rows = jnp.square(leaf.astype(jnp.float32)).reshape(len(layers) or 1, -1).sum(1)
        for row, layer in enumerate(layers or [0]):
            squares[f"{name}.{layer}.{kind}" if layers else name] += rows[row]
    return {name: jnp.sqrt(total) for name, total in squares.items()}


def _names(specs: PyTree) -> dict[str, tuple[str, tuple[int, ...]]]:
    """By the beginning of the path of a parameter: its name, and the layers of its rows, if it has one for each."""
    names: dict[str, tuple[str, tuple[int, ...]]] = {}
    for field in dataclasses.fields(specs):
        model = getattr(specs, field.name)
        for path, stage in model.all_stages.items() if isinstance(model, Encoder) else ():
            name = f"{field.name}{path}".replace("[", "").replace("]", "")
            trees = [
                (f"{part}[{index}]", layers)
                for part, of_part in layer_indices(stage.layers).items()
                for index, layers in enumerate(of_part)
            ]
            names |= {f".{field.name}{path}.layers.{tree}": (name, layers) for tree, layers in trees}
            names |= {f".{field.name}{path}.{part}": (f"{name}.{part}", ()) for part in ("embed", "positions", "norm")}
    return names


def _branches(function: Callable[[], Array]) -> dict[str, Array]:
    """What sublayers add over what their block reads, by block and sublayer, from the names in the program of a
    function; none of blocks that hide them, as reversible ones do."""
    blocks: list[tuple[Array, list[Array]]] = []
    for name, value in named_states(function):
        norm = jnp.sqrt(jnp.square(value.astype(jnp.float32)).sum())
        if name == BLOCK_INPUT:
            blocks.append((norm, []))
        elif blocks:
            blocks[-1][1].append(norm)
    return dict(_ratios(blocks))


def named_states(function: Callable[[], Array]) -> list[tuple[str, Array]]:
    """What the blocks of the program of a function read, and what their sublayers add, in order, with their names
    `BLOCK_INPUT` and `BRANCH`. Blocks must be unrolled and not recomputed."""
    closed = jax.make_jaxpr(function)()
    named = [
        equation
        for equation in closed.jaxpr.eqns
        if equation.primitive.name == "name" and equation.params["name"] in (BLOCK_INPUT, BRANCH)
    ]
    outvars = [equation.outvars[0] for equation in named]
    jaxpr = closed.jaxpr.replace(outvars=outvars, debug_info=closed.jaxpr.debug_info.with_unknown_names())
    values = cast(list[Array], jaxpr_as_fun(ClosedJaxpr(jaxpr, closed.consts))())
    return [(equation.params["name"], value) for equation, value in zip(named, values, strict=True)]


def _ratios(blocks: list[tuple[Array, list[Array]]]) -> Iterator[tuple[str, Array]]:
    """The name and the ratio of each sublayer."""
    for index, (stream, branches) in enumerate(blocks):
        for name, branch in zip(_SUBLAYERS.get(len(branches), ()), branches, strict=False):
            yield f"{index}.{name}", branch / jnp.maximum(stream, 1e-30)
