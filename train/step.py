"""The training state, the training step and the evaluation step."""

from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import Array

import tfm

# loss(params, batch, key) -> sums over the batch, among them "loss" and "weight"
Loss = Callable[..., dict[str, Array]]


@struct.dataclass
class State:
    """What a step changes: the number of steps done, parameters, optimizer state."""

    step: Array
    params: object
    opt: object


def new_state(specs, optimizer: optax.GradientTransformation, seed: int, mesh) -> State:
    """Fresh parameters and moments, made where they live on the mesh."""

    def make(key):
        params = tfm.init(specs, key, mesh)
        return State(jnp.zeros((), jnp.int32), params, optimizer.init(params))

    with jax.set_mesh(mesh):
        return jax.jit(make)(jax.random.key(seed))


def make_train_step(loss: Loss, optimizer: optax.GradientTransformation, seed: int, dropout: bool):
    """step(state, batch) -> (state, sums); the batch has fields [parts, rows, ...] (`feed.put`), the old state is given up.

    The gradient is that of the mean over all predicted tokens of all parts, however many each of them has.
    """

    @partial(jax.jit, donate_argnums=0)
    def train_step(state: State, batch: Mapping[str, Array]):
        key = jax.random.fold_in(jax.random.key(seed), state.step) if dropout else None
        grads, sums = _accumulate(loss, state.params, batch, key)
        grads = jax.tree.map(lambda grad: grad / jnp.maximum(sums["weight"], 1), grads)
        updates, opt = optimizer.update(grads, state.opt, state.params)
        sums["grad_norm"] = optax.tree.norm(grads)
        return State(state.step + 1, optax.apply_updates(state.params, updates), opt), sums

    return train_step


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
            sums = loss(params, part, part_key)
            return sums["loss"], sums

        grads, sums = jax.grad(total, has_aux=True)(params)
        return grads, sums

    parts = len(batch["tokens"])
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
