"""Adam in the eigenbases of second moments of rows and of columns, which move slowly (SOAP: Vyas et al. 2025).

A matrix G [I,O] of gradients has two factors, the moving averages of G G^T and of G^T G. In the bases of their
eigenvectors the elements of G hardly depend on one another, and Adam's second moments say more about each.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

import tfm
from tfm.params import PyTree
from train.training.matrices import as_matrices, as_parameter, is_masked

# Steps between two refinements of the bases.
EVERY = 10

# A side that is longer keeps its own basis.
LONGEST = 10_000

# Of the rows and of the columns of matrices: [L,I,I] and [L,O,O], or None for a side that keeps its own basis.
Sides = tuple[Array | None, Array | None]


class Rotated(NamedTuple):
    """What the matrices [L,I,O] of a parameter keep.

    mean: the first moment; square: the second moment in the bases
    factors: second moments of rows and of columns
    bases: their eigenvectors, in columns, the largest eigenvalue first
    """

    mean: Array
    square: Array
    factors: Sides
    bases: Sides


class Eigenbases(NamedTuple):
    """Updates done, and what each parameter keeps."""

    steps: Array
    rotated: PyTree


def scale_by_eigenbases(specs, beta1: float, beta2: float, eps: float) -> optax.GradientTransformation:
    """Gradients -> updates of Adam in the eigenbases of their parameters (Vyas et al. 2025, algorithm 3).

    The first update is 0: it finds the bases. They are refined every `EVERY` steps, by one step of power iteration.
    """

    def init(params):
        return Eigenbases(jnp.zeros((), jnp.int32), jax.tree.map(_zeros, params, specs, is_leaf=is_masked))

    def update(updates, state, params=None):
        steps = state.steps

        def followed(update, spec, leaf):
            if is_masked(update):
                return update
            gradient = as_matrices(update, spec)
            mean = jnp.where(steps > 0, beta1 * leaf.mean + (1 - beta1) * gradient, 0)
            square = beta2 * leaf.square + (1 - beta2) * jnp.square(_into(gradient, leaf.bases))
            factors = jax.tree.map(
                lambda factor, outer: beta2 * factor + (1 - beta2) * outer, leaf.factors, _factors_of(gradient)
            )
            return Rotated(mean, square, factors, leaf.bases)

        def direction(update, leaf):
            if is_masked(update):
                return update
            count = jnp.maximum(steps, 1).astype(jnp.float32)
            unbiased = jnp.sqrt(1 - beta2**count) / (1 - beta1**count)
            scaled = unbiased * _into(leaf.mean, leaf.bases) / (jnp.sqrt(leaf.square) + eps)
            return as_parameter(_out_of(scaled, leaf.bases), update)

        def refined(update, leaf):
            return update if is_masked(update) else _by_layer(leaf, steps)

        rotated = jax.tree.map(followed, updates, specs, state.rotated, is_leaf=is_masked)
        directions = jax.tree.map(direction, updates, rotated, is_leaf=is_masked)
        return directions, Eigenbases(steps + 1, jax.tree.map(refined, updates, rotated, is_leaf=is_masked))

    return optax.GradientTransformation(init, update)


def _zeros(param: PyTree, spec: tfm.Spec) -> PyTree:
    """The first state of a parameter."""
    if is_masked(param):
        return param
    matrices = as_matrices(jnp.zeros_like(param), spec)
    return Rotated(matrices, matrices, _factors_of(matrices), _factors_of(matrices))


def _factors_of(matrices: Array) -> Sides:
    """X X^T [L,I,I] and X^T X [L,O,O] of matrices X [L,I,O]."""
    _, inputs, outputs = matrices.shape
    rows = matrices @ matrices.mT if inputs <= LONGEST else None
    return rows, matrices.mT @ matrices if outputs <= LONGEST else None


def _into(matrices: Array, bases: Sides) -> Array:
    """Matrices [L,I,O] in the bases."""
    rows, columns = bases
    matrices = matrices if rows is None else rows.mT @ matrices
    return matrices if columns is None else matrices @ columns


def _out_of(matrices: Array, bases: Sides) -> Array:
    """The inverse of `_into`."""
    return _into(matrices, jax.tree.map(lambda basis: basis.mT, bases))


def _by_layer(leaf: Rotated, steps: Array) -> Rotated:
    """`_with_bases` of the layers that each device has: decompositions are of whole matrices."""
    sharding = jax.typeof(leaf.mean).sharding
    if sharding.mesh.empty:
        return _with_bases(leaf, steps)
    layers, replicated = jax.P(sharding.spec[0]), jax.P()
    return jax.shard_map(_with_bases, in_specs=(layers, replicated), out_specs=layers, check_vma=False)(leaf, steps)


def _with_bases(leaf: Rotated, steps: Array) -> Rotated:
    """The bases as they are; after the first update those of the factors; every `EVERY` updates refined ones."""
    refines = (steps > 0) & (steps % EVERY == 0)
    which = jnp.where(steps == 0, 2, refines.astype(jnp.int32))
    return jax.lax.switch(which, [lambda leaf: leaf, _refined, _started], leaf)


def _started(leaf: Rotated) -> Rotated:
    """All eigenvectors of the factors."""
    return leaf._replace(bases=jax.tree.map(lambda factor: jnp.linalg.eigh(factor)[1][..., ::-1], leaf.factors))


def _refined(leaf: Rotated) -> Rotated:
    """One step of power iteration on bases whose vectors stand by their eigenvalues; second moments move with them."""
    square, bases = leaf.square, list(leaf.bases)
    for side, (factor, basis) in enumerate(zip(leaf.factors, leaf.bases, strict=True)):
        if factor is None or basis is None:
            continue
        order = jnp.argsort(-jnp.einsum("lij,lij->lj", basis, factor @ basis), axis=1)
        square = jnp.take_along_axis(square, jnp.expand_dims(order, 2 - side), 1 + side)
        bases[side] = jnp.linalg.qr(factor @ jnp.take_along_axis(basis, order[:, None], 2))[0]
    return leaf._replace(square=square, bases=(bases[0], bases[1]))
