"""Which parameters are matrices, and updates of matrices whose singular values are about equal.

`Spec.inputs` says which axes of a leaf are the inputs of a product. Leaves are stacked along L, and inputs and outputs
of a matrix may have several axes.
"""

import itertools
import math
import operator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.sharding import PartitionSpec, reshard

import tfm
from tfm.params import PyTree

# Steps a x + b x^3 + c x^5 on singular values: one five times (Jordan et al. 2024), and the best ones in their order,
# for values that may be 1.01 (Polar Express: Amsel et al. 2025, algorithm 1).
Polynomials = tuple[tuple[float, float, float], ...]
JORDAN: Polynomials = 5 * ((3.4445, -4.7750, 2.0315),)
POLAR_EXPRESS: Polynomials = tuple(
    (a / 1.01, b / 1.01**3, c / 1.01**5)
    for a, b, c in (
        (8.2872, -23.5959, 17.3004),
        (4.1071, -2.9479, 0.5448),
        (3.9487, -2.9089, 0.5518),
        (3.3184, -2.4885, 0.5100),
        (2.3007, -1.6689, 0.4188),
    )
)

# The root mean square of an update, about that of AdamW (Liu et al. 2025, eq. 4).
_SIZE = 0.2

# Axes of tables and of classes.
_TABLE_AXES = set("VPYC")


def maps_vectors(spec: tfm.Spec) -> bool:
    """Whether a parameter is a matrix of layers: tables are looked up, and classes are chosen."""
    return bool(matrix_axes(spec)[0]) and not set(spec.axes) & _TABLE_AXES


def matrix_axes(spec: tfm.Spec) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The input axes and the output axes of a matrix or table, counted from the last; none for other parameters.

    A parameter whose axes are all inputs is a vector.
    """
    axes = tuple(range(-len(spec.axes.removeprefix("L")), 0))
    if not spec.decay or not 0 < spec.inputs < len(axes):
        return (), ()
    return axes[: spec.inputs], axes[spec.inputs :]


def orthogonal(update: Array, spec: tfm.Spec, steps: Polynomials = JORDAN) -> Array:
    """About the nearest matrix with equal singular values and root mean square 0.2, for each layer."""
    if is_masked(update):
        return update
    matrices = as_matrices(update, spec)
    return as_parameter(newton_schulz(matrices, steps) * (_SIZE * max(matrices.shape[1:]) ** 0.5), update)


def as_matrices(update: Array, spec: tfm.Spec) -> Array:
    """The matrices [L,I,O] of the layers, which are not sharded themselves: layers are, over as many devices as divide
    them. Muon of optax has no place for that (M58)."""
    inputs, outputs = (math.prod(update.shape[axis] for axis in axes) for axes in matrix_axes(spec))
    mesh = jax.typeof(update).sharding.mesh
    if not mesh.empty:
        layer_axes = _layer_axes(mesh, update.shape[0]) if spec.axes.startswith("L") else None
        update = reshard(update, PartitionSpec(layer_axes))
    return update.reshape(-1, inputs, outputs)


def as_parameter(matrices: Array, update: Array) -> Array:
    """Matrices [L,I,O] with the shape and the sharding of an update."""
    sharding = jax.typeof(update).sharding
    result = matrices.reshape(update.shape)
    return result if sharding.mesh.empty else reshard(result, sharding)


def newton_schulz(x: Array, steps: Polynomials = JORDAN) -> Array:
    """x [L,I,O] -> [L,I,O] with singular values near 1: odd polynomials of them (Jordan et al. 2024)."""
    x = x / (jnp.sqrt(jnp.square(x).sum((1, 2), keepdims=True)) + 1e-8)
    flat = x.shape[1] > x.shape[2]
    x = x.mT if flat else x
    for linear, cubic, quintic in steps:
        gram = x @ x.mT
        x = linear * x + (cubic * gram + quintic * gram @ gram) @ x
    return x.mT if flat else x


class Neurons(NamedTuple):
    """The second moment of each output of each matrix, over its inputs."""

    moments: PyTree


def scale_by_neurons(specs, decay: float) -> optax.GradientTransformation:
    """Divides updates by the root of the second moment of their output; a layer keeps the root mean square of updates
    (NorMuon: Li et al. 2025, algorithm 1). The moments are not corrected for their start: one factor for a layer is
    none."""

    def init(params):
        zeros = lambda param, spec: param if is_masked(param) else _mean_square(spec, jnp.zeros_like(param))
        return Neurons(jax.tree.map(zeros, params, specs, is_leaf=is_masked))

    def update(updates, state, params=None):
        def moved(update, spec, moment):
            return update if is_masked(update) else decay * moment + (1 - decay) * _mean_square(spec, update)

        def scaled(update, spec, moment):
            if is_masked(update):
                return update
            scaled = update / (jnp.sqrt(moment) + 1e-10)
            axes = tuple(range(spec.axes.startswith("L"), update.ndim))
            return scaled * (_SIZE / jnp.sqrt(jnp.square(scaled).mean(axes, keepdims=True)))

        moments = jax.tree.map(moved, updates, specs, state.moments, is_leaf=is_masked)
        return jax.tree.map(scaled, updates, specs, moments, is_leaf=is_masked), Neurons(moments)

    return optax.GradientTransformation(init, update)


def _mean_square(spec: tfm.Spec, update: Array) -> Array:
    """The mean square over the inputs of a matrix."""
    return jnp.square(update).mean(matrix_axes(spec)[0], keepdims=True)


def _layer_axes(mesh, layers: int) -> tuple[str, ...]:
    """The first mesh axes whose product divides the layers."""
    sizes = itertools.accumulate(mesh.shape.values(), operator.mul)
    return tuple(name for name, size in zip(mesh.axis_names, sizes, strict=True) if layers % size == 0)


def is_masked(leaf: object) -> bool:
    """Whether another optimizer has the parameter."""
    return isinstance(leaf, optax.MaskedNode)
