"""Losses of layers, beside that of a task: a training step adds their gradients where they arise.

A layer attaches its loss to what it returns. The value of that does not change; in the backward pass the gradient of
the layer's loss joins the others, times the weight that the step has put into the parameters (`with_loss_weight`):
that of the task's targets, since the loss of a task is a sum over them. Without a weight nothing is added: so
evaluation, and gradients that ask what depends on what, are those of the task alone. No function on the path from the
layer to the step hands anything on.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.params import PyTree


@struct.dataclass
class LossPlace:
    """Where a layer has a loss of its own.

    observed: running state [...] of the layer, such as the load of its experts
    weight: float32 [] of the loss, or None; [L] where layers are stacked
    """

    observed: Array
    weight: Array | None = None


def _is_place(node: object) -> bool:
    return isinstance(node, LossPlace)


def has_losses(params: PyTree) -> bool:
    """Whether a tree of parameters has layers with losses of their own."""
    return any(map(_is_place, jax.tree.leaves(params, is_leaf=_is_place)))


def with_loss_weight(params: PyTree, weight: Array) -> PyTree:
    """The parameters for one training step, whose losses of layers weigh as much as `weight` targets, float32 []."""

    def put(node: PyTree) -> PyTree:
        if not _is_place(node):
            return node
        return replace(node, weight=jnp.broadcast_to(weight, node.observed.shape[:-1]))

    return jax.tree.map(put, params, is_leaf=_is_place)


def attach_loss(y: Array, loss: Array, place: LossPlace) -> Array:
    """y as it is; its backward pass adds the gradient of loss [], float32, times the weight of its place."""
    return y if place.weight is None else _attached(y, loss, jax.lax.stop_gradient(place.weight))


@jax.custom_vjp
def _attached(y: Array, loss: Array, weight: Array) -> Array:
    return y


def _forward(y: Array, loss: Array, weight: Array) -> tuple[Array, Array]:
    return y, weight


def _backward(weight: Array, dy: Array) -> tuple[Array, Array, None]:
    return dy, weight, None


_attached.defvjp(_forward, _backward)
