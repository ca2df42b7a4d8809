"""Layers whose backward pass computes what they have read instead of storing it (Gomez et al. 2017, algorithm 1).

Memory for activations is then that of one layer, however many there are; each layer is computed twice, as with
rematerialization.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from tfm.params import PyTree


class ReversibleLayers(NamedTuple):
    """Layers, the same in each of several rows of parameters.

    forward: (x, rows, shared, constants) -> y
    invert: (y, its cotangent, pull) -> x and its cotangent, for the layers of one row. `pull(evaluate, x, cotangent)`
        is `evaluate(x, row, shared, constants)` and the cotangent of its x
    repetitions: the number of rows
    scan: rows are scanned, not unrolled
    """

    forward: Callable[..., PyTree]
    invert: Callable[..., tuple[PyTree, PyTree]]
    repetitions: int
    scan: bool


class Leaves(NamedTuple):
    """The leaves of a tree by what they are; None stands where a leaf is of another kind."""

    floats: PyTree
    arrays: PyTree
    static: PyTree


def run_reversible(layers: ReversibleLayers, x: PyTree, rows: PyTree, shared: PyTree, constants: PyTree) -> PyTree:
    """x, trees whose leaves have a row for each repetition, and trees for all of them -> y.

    x, rows and shared have gradients, constants have none.
    """
    rows, shared, constants = split_leaves(rows), split_leaves(shared), split_leaves(constants)
    arrays = rows.arrays, shared.arrays, constants.floats, constants.arrays

    def join(floats: tuple, arrays: tuple) -> tuple:
        return (
            join_leaves(floats[0], arrays[0], rows.static),
            join_leaves(floats[1], arrays[1], shared.static),
            join_leaves(arrays[2], arrays[3], constants.static),
        )

    @jax.custom_vjp
    def run(x, floats, arrays):
        return layers.forward(x, *join(floats, arrays))

    def forward(x, floats, arrays):
        y = run(x, floats, arrays)
        return y, (y, floats, arrays)

    def backward(saved, dy):
        y, (row_floats, floats), (row_arrays, *arrays) = saved

        def step(carry, row):
            y, dy, d_floats = carry
            gradients = Gradients(
                lambda row_floats, floats: join((row_floats, floats), (row[1], *arrays)), row[0], floats
            )
            x, dx = layers.invert(y, dy, gradients.pull)
            d_row, d_shared = gradients.sums
            return (x, dx, jax.tree.map(jnp.add, d_floats, d_shared)), d_row

        carry = y, dy, jax.tree.map(jnp.zeros_like, floats)
        (_, dx, d_floats), d_rows = _from_the_last(step, carry, (row_floats, row_arrays), layers)
        return dx, (d_rows, d_floats), None

    run.defvjp(forward, backward)
    return run(x, (rows.floats, shared.floats), arrays)


class Gradients:
    """The gradients of one row and of shared trees, which every `pull` adds to.

    join: floats of the row and of shared trees -> the row, shared trees and constants
    """

    def __init__(self, join: Callable[..., tuple], row_floats: PyTree, floats: PyTree):
        self.join, self.floats = join, (row_floats, floats)
        self.sums = jax.tree.map(jnp.zeros_like, self.floats)

    def pull(self, evaluate: Callable, x: PyTree, cotangent: PyTree) -> tuple[PyTree, PyTree]:
        """See `ReversibleLayers.invert`."""
        value, vjp = jax.vjp(lambda x, floats: evaluate(x, *self.join(*floats)), x, self.floats)
        dx, d_floats = vjp(cotangent)
        self.sums = jax.tree.map(jnp.add, self.sums, d_floats)
        return value, dx


def _from_the_last(step: Callable, carry: PyTree, rows: PyTree, layers: ReversibleLayers) -> tuple[PyTree, PyTree]:
    """`jax.lax.scan` from the last row to the first; without `scan` unrolled."""
    if layers.scan:
        return jax.lax.scan(step, carry, rows, layers.repetitions, reverse=True)
    results = []
    for index in reversed(range(layers.repetitions)):
        carry, result = step(carry, jax.tree.map(lambda leaf, index=index: leaf[index], rows))
        results.append(result)
    return carry, jax.tree.map(lambda *leaves: jnp.stack(leaves), *reversed(results))


def split_leaves(tree: PyTree) -> Leaves:
    """The floating-point arrays of a tree, its other arrays, and what is no array of jax."""

    def kind(leaf: object) -> str:
        if not isinstance(leaf, jax.Array):
            return "static"
        return "floats" if jnp.issubdtype(leaf.dtype, jnp.inexact) else "arrays"

    return Leaves(
        *(jax.tree.map(lambda leaf, n=name: leaf if kind(leaf) == n else None, tree) for name in Leaves._fields)
    )


def join_leaves(*trees: PyTree) -> PyTree:
    """The tree that `split_leaves` has split."""

    def first(*leaves: PyTree) -> PyTree:
        return next((leaf for leaf in leaves if leaf is not None), None)

    return jax.tree.map(first, *trees, is_leaf=lambda node: node is None)
