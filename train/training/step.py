"""The training state, the training step and the evaluation step."""

from collections.abc import Callable, Mapping
from functools import cache, partial

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import Array

import tfm
from train.training import optimizer as optim
from train.training import stochastic_rounding

# loss(params, batch, key) -> sums over the batch, among them "loss" and "weight", and arrays [B, ...] for evaluation alone
Loss = Callable[..., dict[str, Array]]

# Bytes of a heap of temporaries on a CPU, where only allocations below 64 MiB are kept from step to step
# (`cpu.keep_memory`), and of the largest array with which heaps are used. M14: 0.88 of a step.
HEAP, LARGEST = 56 << 20, 84 << 20

# Compiler options of a step, by platform. On a CPU: XLA's own products and sums instead of YNNPACK's (M13: 0.88 to 0.99
# of a step).
HEAPS = "xla_multiheap_size_constraint_per_heap"
OPTIONS = {"cpu": {"xla_cpu_experimental_ynn_fusion_type": "", HEAPS: str(HEAP)}}


@struct.dataclass
class State:
    """What a step changes: the number of steps done, parameters, optimizer state, and a moving average of the parameters or None."""

    step: Array
    params: object
    opt: object
    ema: object = None

    @property
    def best_params(self):
        """What is evaluated and used later: the average, where there is one."""
        return self.params if self.ema is None else self.ema


def new_state(specs, optimizer: optax.GradientTransformation, seed: int, mesh, ema: float = 0.0) -> State:
    """Fresh parameters and moments, made where they live on the mesh; the average is in float32."""
    with jax.set_mesh(mesh):
        return jax.jit(partial(_fresh, specs, optimizer, mesh, ema))(jax.random.key(seed))


def abstract_state(specs, optimizer: optax.GradientTransformation, mesh, ema: float = 0.0) -> State:
    """The shapes and shardings of `new_state`: nothing is allocated, and the devices of the mesh may be absent."""
    with jax.set_mesh(mesh):
        return jax.eval_shape(lambda: _fresh(specs, optimizer, mesh, ema, jax.random.key(0)))


def _fresh(specs, optimizer: optax.GradientTransformation, mesh, ema: float, key: Array) -> State:
    params = tfm.init(specs, key, mesh)
    average = jax.tree.map(lambda leaf: jnp.copy(leaf).astype(jnp.float32), params) if ema else None
    return State(jnp.zeros((), jnp.int32), params, optimizer.init(params), average)


def make_train_step(
    loss: Loss,
    optimizer: optax.GradientTransformation,
    seed: int,
    dropout: bool,
    ema: float = 0.0,
    compiler_options: dict[str, str] | None = None,
):
    """step(state, batch) -> (state, sums); the batch has fields [parts, rows, ...] (`feed.to_devices`), the old state is given up.

    The gradient is that of the mean over all predicted tokens of all parts, however many each of them has. What the state holds in
    bfloat16 is updated in float32, and rounded at random. `compiler_options` are those that `options` found.
    """

    @partial(jax.jit, donate_argnums=0, compiler_options=compiler_options)
    def train_step(state: State, batch: Mapping[str, Array]):
        key = jax.random.fold_in(jax.random.key(seed), state.step) if dropout else None
        grads, sums = _accumulate(loss, state.params, batch, key)
        grads = jax.tree.map(lambda grad: grad / jnp.maximum(sums["weight"], 1), grads)
        before = stochastic_rounding.widen((state.params, state.opt))
        updates, opt = optimizer.update(grads, before[1], before[0])
        sums["grad_norm"] = optim.global_norm(grads)
        params = optax.apply_updates(before[0], updates)
        average = _average(state.ema, params, ema, state.step) if ema else None
        draws = jax.random.fold_in(jax.random.key(seed), 2**32 - 1)  # no step has this number
        params, opt = stochastic_rounding.narrow(
            (params, opt), (state.params, state.opt), jax.random.fold_in(draws, state.step)
        )
        return State(state.step + 1, params, opt, average), sums

    return train_step


def options(platform: str, largest: float) -> dict[str, str]:
    """`OPTIONS` of a platform that its compiler knows; heaps only where the largest array of a step has at most `LARGEST` bytes."""
    found = {name: value for name, value in OPTIONS.get(platform, {}).items() if _known(name, value)}
    if largest > LARGEST:
        found.pop(HEAPS, None)
    elif largest > HEAP and HEAPS in found and jax.config.jax_logging_level == "NOTSET":  # type: ignore[attr-defined]
        jax.config.update("jax_logging_level", "ERROR")  # XLA warns of each such array, many times
    return found


@cache
def _known(name: str, value: str) -> bool:
    """Whether this XLA has an option."""
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _average(average, params, decay: float, step: Array):
    """Moves the average towards the parameters: by 1 - decay, and by more at the beginning, where it has seen little."""
    keep = jnp.minimum(decay, (1 + step) / (10 + step))
    return jax.tree.map(lambda old, new: old + (1 - keep) * (new - old), average, params)


def make_eval_step(loss: Loss):
    """step(params, batch) -> sums, without dropout; the batch has one part."""

    @jax.jit
    def eval_step(params, batch: Mapping[str, Array]):
        return loss(params, _part(batch, 0), None)

    return eval_step


def _accumulate(loss: Loss, params, batch, key):
    """Gradients and sums added up over the parts of a batch, one part at a time."""

    def part_gradient(part, part_key):
        def total(params):
            sums = {name: value for name, value in loss(params, part, part_key).items() if value.ndim == 0}
            return sums["loss"], sums

        grads, sums = jax.grad(total, has_aux=True)(params)
        return stochastic_rounding.widen(grads), sums

    parts = len(next(iter(batch.values())))
    if parts == 1:
        return part_gradient(_part(batch, 0), key)
    keys = None if key is None else jax.random.split(key, parts)

    def add(total, inputs):
        return jax.tree.map(jnp.add, total, part_gradient(*inputs)), None

    first = part_gradient(_part(batch, 0), None if keys is None else keys[0])
    rest = jax.tree.map(lambda field: field[1:], (batch, keys))
    return jax.lax.scan(add, first, rest)[0]


def _part(batch, number: int):
    return {name: field[number] for name, field in batch.items()}
