"""The training step, the evaluation step, and the state before the first step."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

import tfm
from tfm.low_rank import with_dropout_keys
from tfm.params import PyTree
from train.devices.compiling import YNNPACK, is_known
from train.losses.joint import JointLoss
from train.losses.loss import MEMORY, Extra, Loss, Sums, objective, scalar_sums
from train.losses.teaching import with_totals
from train.runs.state import LossScale, RunNumbers, State
from train.training import loss_scale, stochastic_rounding
from train.training.gradient_cache import ParamsOf, cached_gradient
from train.training.optimizer import Optimizer, global_norm

# The memory of the rows of a batch whose texts begin, leaves [parts, ...]; or None.
NewMemory = Callable[[], tfm.SegmentMemory | None]

# key -> a state without numbers.
FreshProgram = Callable[[Array], State]

# step(state, batch) -> (state, sums).
TrainStep = Callable[[State, Mapping[str, Array]], tuple[State, dict[str, Array]]]

# Bytes of a heap of temporaries on a CPU, where only allocations below 64 MiB are kept from step to step
# (`cpu.keep_memory`), and of the largest array with which heaps are used. M14: 0.88 of a step. And the steps of
# a program from which they pay: one with several heaps is compiled at every start (M42).
HEAP, LARGEST, HEAPS_FROM = 56 << 20, 84 << 20, 100

# Compiler options of a step, by platform. On a CPU: XLA's own products and sums. On a GPU: products of cuBLAS, which
# add biases and apply GELU before they write, instead of Triton's; and each product for itself, for merged ones leave
# copies behind (M60).
HEAPS = "xla_multiheap_size_constraint_per_heap"
OPTIONS = {
    "cpu": {YNNPACK: "", HEAPS: str(HEAP)},
    "gpu": {"xla_gpu_enable_triton_gemm": "False", "xla_gpu_dot_merger_threshold_mb": "0"},
}
OPTIONS_OF_BFLOAT16 = {"cpu": {YNNPACK: "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"}}


def no_memory() -> None:
    """Rows are texts of their own."""


def fresh_program(
    specs,
    optimizer: Optimizer,
    mesh,
    has_average: bool = False,
    memory: NewMemory = no_memory,
    is_scaled: bool = False,
) -> FreshProgram:
    """key -> fresh parameters, moments and memory, made where they live on the mesh; the average, if there is one, is
    in float32. `is_scaled` says whether the loss has a scale."""

    def fresh(key: Array) -> State:
        params = tfm.init(specs, key, mesh)
        average = new_average(params) if has_average else None
        scale = loss_scale.new_scale() if is_scaled else None
        return State(jnp.zeros((), jnp.int32), params, optimizer.init(params), average, memory(), scale)

    return jax.jit(fresh)


def new_state(
    specs, optimizer: Optimizer, seed: int, mesh, has_average: bool = False, is_scaled: bool = False
) -> State:
    """A fresh state whose rows are texts of their own."""
    fresh = fresh_program(specs, optimizer, mesh, has_average, is_scaled=is_scaled)
    return first_state(fresh, optimizer, seed, mesh)


def first_state(fresh: FreshProgram, optimizer: Optimizer, seed: int, mesh) -> State:
    """The state of a run before its first step."""
    key = jax.random.key(seed)
    everywhere = NamedSharding(mesh, PartitionSpec(None))  # the spelling of a step's outputs: it is compiled once
    with jax.set_mesh(mesh):
        state = fresh(key)
        numbers = jax.jit(partial(run_numbers, optimizer), out_shardings=everywhere)(key)
    return dataclasses.replace(state, numbers=numbers)


def abstract_state(fresh: FreshProgram, optimizer: Optimizer, mesh) -> State:
    """The shapes and shardings of `first_state`: nothing is allocated, and the devices of the mesh may be absent."""
    with jax.set_mesh(mesh):
        key = jax.eval_shape(jax.random.key, 0)
        numbers = jax.eval_shape(partial(run_numbers, optimizer), key)
        return dataclasses.replace(jax.eval_shape(fresh, key), numbers=numbers)


def new_average(params):
    """A moving average that starts at the parameters: copies in float32."""
    return jax.tree.map(lambda leaf: jnp.copy(leaf).astype(jnp.float32), params)


def make_train_step(
    loss: Loss,
    model: tfm.Config,
    optimizer: Optimizer,
    seed: int,
    dropout: bool,
    ema: float | None = None,
    compiler_options: dict[str, str] | None = None,
):
    """step(state, batch) -> (state, sums); the batch has fields [parts, rows, ...], and the old state is donated.

    The gradient is that of the mean over all predicted tokens of all parts, however many each part has, for the
    parameters that the optimizer trains. Running state moves by the mean of its changes in all parts. Leaves of the
    state in bfloat16 are updated in float32 and rounded at random. `compiler_options` is what that function returns.
    Without numbers in the state, those of the seed and the optimizer are constants of the program. With a scale in the
    state, gradients that are not finite change nothing but the scale.
    """

    @partial(jax.jit, donate_argnums=0, compiler_options=compiler_options)
    def train_step(state: State, batch: Mapping[str, Array]):
        numbers = state.numbers or run_numbers(optimizer, jax.random.key(seed))
        run_key = jax.random.wrap_key_data(numbers.key)
        key = jax.random.fold_in(run_key, state.step) if dropout else None
        trained, frozen = split_params(optimizer, state, run_key)
        running, params_of = optimizer.running(frozen), partial(_params_of, optimizer, frozen)
        if isinstance(loss, JointLoss) and _parts(batch) > 1:
            changing = trained, running
            (grads, changes), sums, memory = cached_gradient(loss, model, params_of, changing, batch, key, state.scale)
            grads = loss_scale.unscaled(grads, sums["weight"], state.scale)
        else:
            total = partial(_summed_loss, loss, model, params_of, state)
            compute = partial(jax.grad(total, has_aux=True), (trained, running))
            inputs = with_totals(loss, batch), state.memory, _part_keys(key, _parts(batch))
            (grads, changes), sums, memory = _accumulate(compute, compute(*_first_part(inputs)), inputs, state.scale)
        moved = jax.tree.map(lambda leaf, change: leaf + change / _parts(batch), running, changes)
        frozen = optimizer.join(moved, frozen)
        grads = jax.tree.map(lambda grad: grad / jnp.maximum(sums["weight"], 1), stochastic_rounding.widen(grads))
        sums["grad_norm"] = global_norm(grads)
        wide_params, params, opt = _updated(optimizer, state, trained, grads, numbers)
        own = wide_params if optimizer.average is None else optimizer.average(opt, wide_params)
        average = _average(optimizer.specs, state, optimizer.join(own, frozen), ema)
        changed = State(state.step + 1, optimizer.join(params, frozen), opt, average, memory)
        if state.scale is not None:
            changed, sums = loss_scale.without_overflow(state, changed, sums)
        return dataclasses.replace(changed, teacher=state.teacher, numbers=state.numbers), sums

    return train_step


def _summed_loss(loss: Loss, model: tfm.Config, params_of: ParamsOf, state: State, changing, *part):
    """The sum over a part (fields, memory, key) to differentiate by what changes, all scalar sums and the memory."""
    fields, memory, key = part
    compute = partial(loss, **Extra(memory, state.teacher).arguments)
    params = params_of(changing, key)
    if tfm.has_losses(params):  # the sum has those of layers as often as targets; of this pass the weight alone is run
        weight = jax.lax.stop_gradient(compute(params, model, fields, key)["weight"])
        params = tfm.with_loss_weight(params, loss_scale.scaled(weight, weight, state.scale))
    outputs = compute(params, model, fields, key)
    total = loss_scale.scaled(objective(outputs), outputs["weight"], state.scale)
    return total, (scalar_sums(outputs), outputs.get(MEMORY))


def split_params(optimizer: Optimizer, state: State, run_key: Array) -> tuple[PyTree, PyTree]:
    """The trained and the frozen parameters as a step reads them: some are drawn anew, by the key of the run."""
    return optimizer.split(tfm.redraw(optimizer.specs, state.params, run_key, state.step))


def _params_of(optimizer: Optimizer, frozen, changing, key: Array | None):
    """The parameters of a pass; what changes are trained parameters and running state."""
    trained, running = changing
    return with_dropout_keys(optimizer.join(trained, optimizer.join(running, frozen)), key)


def _updated(optimizer: Optimizer, state: State, trained, grads, numbers: RunNumbers):
    """The trained parameters after an update, in float32 and as the state keeps them, and the optimizer's state."""
    wide_params, wide_opt = stochastic_rounding.widen((trained, state.opt))
    updates, opt = optimizer.update(grads, wide_opt, wide_params, numbers.rates)
    wide_params = optax.apply_updates(wide_params, updates)
    key = _rounding_key(jax.random.wrap_key_data(numbers.key), state.step)
    return wide_params, *stochastic_rounding.narrow((wide_params, opt), (trained, state.opt), key)


def run_numbers(optimizer: Optimizer, key: Array) -> RunNumbers:
    """The numbers of a run with the key of its seed."""
    return RunNumbers(jax.random.key_data(key), optimizer.rates())


def _rounding_key(key: Array, step: Array) -> Array:
    """The key of the rounding in a step, which nothing else takes: no step has the number 2^32 - 1."""
    return jax.random.fold_in(jax.random.fold_in(key, 2**32 - 1), step)


def _part_keys(key: Array | None, parts: int) -> Array | None:
    """The key of every part; that of a single one is the key of the step."""
    if key is None:
        return None
    return key[None] if parts == 1 else jax.random.split(key, parts)


def _accumulate(compute, first, inputs, scale: LossScale | None):
    """Gradients and changes, sums, and the memory of every part, from those of the first part; gradients of several
    parts are float32 and, like sums, added up.

    One part is computed at a time.
    """

    def read(part):
        (grads, changes), (sums, memory) = part
        return ((loss_scale.unscaled(grads, sums["weight"], scale), changes), sums), memory

    total, memory = read(first)
    if _parts(inputs) == 1:
        return *total, _stacked(memory)

    def add(total, part):
        change, memory = read(compute(*part))
        return jax.tree.map(jnp.add, total, stochastic_rounding.widen(change)), memory

    rest = jax.tree.map(lambda field: field[1:], inputs)
    total, memories = jax.lax.scan(add, stochastic_rounding.widen(total), rest)
    return *total, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), _stacked(memory), memories)


def _stacked(memory: tfm.SegmentMemory | None) -> tfm.SegmentMemory | None:
    """The memory of one part as that of all parts."""
    return jax.tree.map(lambda leaf: leaf[None], memory)


def _parts(batch) -> int:
    """The number of parts of a batch."""
    return len(jax.tree.leaves(batch)[0])


def _first_part(inputs):
    """Inputs of all parts -> those of the first one."""
    return jax.tree.map(lambda field: field[0], inputs)


def _average(specs, state: State, params, decay: float | None):
    """Moves the average towards the parameters: by 1 - decay, and by more in the first steps. What is drawn anew has no
    average. Without a decay it is what the optimizer says, and None where that has none."""
    if state.ema is None:
        return None
    if decay is None:
        return new_average(params)
    keep = jnp.minimum(decay, (1 + state.step) / (10 + state.step))

    def move(spec, mean, param):
        return mean + (1 - keep) * (param - mean) if spec.redraw is None else jnp.copy(param).astype(mean.dtype)

    return jax.tree.map(move, specs, state.ema, params)


def make_eval_step(loss: Loss, model: tfm.Config):
    """step(params, batch, memory=None) -> sums and arrays [B, ...], without dropout, and the memory of the next rows
    where there is one of these; the batch has one part."""

    @jax.jit
    def eval_step(params, batch: Mapping[str, Array], memory: tfm.SegmentMemory | None = None) -> Sums:
        fields, first_memory = _first_part((dict(batch), memory))
        outputs = loss(params, model, fields, None, **Extra(first_memory).arguments)
        return outputs if memory is None else {**outputs, MEMORY: _stacked(outputs[MEMORY])}

    return eval_step


def compiler_options(platform: str, dtype: str, largest: float, steps: int) -> dict[str, str]:
    """The options of a platform that its compiler knows, for a model that computes in `dtype`; heaps only if its
    largest array fits `LARGEST`, in a program that runs at least `HEAPS_FROM` `steps`. They change no result."""
    options = OPTIONS.get(platform, {}) | (OPTIONS_OF_BFLOAT16.get(platform, {}) if dtype == "bfloat16" else {})
    options = {name: value for name, value in options.items() if is_known(name, value)}
    if largest > LARGEST or steps < HEAPS_FROM:
        options.pop(HEAPS, None)
    elif largest > HEAP and HEAPS in options and jax.config.jax_logging_level == "NOTSET":  # type: ignore[attr-defined]
        jax.config.update("jax_logging_level", "ERROR")  # XLA warns of each such array, many times
    return options
