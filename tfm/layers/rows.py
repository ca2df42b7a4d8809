"""Rows of stacked leaves: a tree for each row, and leaves whose rows are arrays of their own."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.config.model import Config


@struct.dataclass
class Rows:
    """The rows of a stacked leaf, each an array: a loop around layers then reads them where they are."""

    rows: tuple[Any, ...]


def unstack(tree: Any, rows: int) -> list[Any]:
    """A tree whose leaves have rows -> a tree a row. Its gradient is one concatenation; that of indexing adds padded
    copies."""
    leaves, structure = jax.tree.flatten(tree, is_leaf=lambda leaf: isinstance(leaf, Rows))
    columns = [leaf.rows if isinstance(leaf, Rows) else jnp.unstack(leaf) for leaf in leaves]
    return [jax.tree.unflatten(structure, [column[row] for column in columns]) for row in range(rows)]


def separate_rows(config: Config, layers: Any) -> Any:
    """`Layers` for a loop that reads them at every step: leaves of the period become `Rows`, where layers are unrolled.

    A slice of a stacked leaf is a copy, and a loop would make it at every step: of all kernels for every token (M45).
    Leaves that are `Rows` stay.
    """
    if config.scan or config.share_layers:
        return layers

    def separate(leaf: Any) -> Rows:
        return leaf if isinstance(leaf, Rows) else Rows(tuple(jnp.unstack(leaf)))

    return layers.replace(period=jax.tree.map(separate, layers.period, is_leaf=lambda leaf: isinstance(leaf, Rows)))


def map_rows(function: Callable[..., Any], tree: Any, *trees: Any) -> Any:
    """A function of trees with leaves [R,...], which returns such a tree.

    Where leaves of the first tree are `Rows`, it gets one row at a time, with leaves [1,...]; the result has `Rows`.
    """
    leaves = jax.tree.leaves(tree, is_leaf=lambda leaf: isinstance(leaf, Rows))
    if not any(isinstance(leaf, Rows) for leaf in leaves):
        return function(tree, *trees)
    rows = zip(*(unstack(part, len(leaves[0].rows)) for part in (tree, *trees)), strict=True)
    results = [function(*jax.tree.map(lambda leaf: leaf[None], row)) for row in rows]
    return jax.tree.map(lambda *leaves: Rows(tuple(leaf[0] for leaf in leaves)), *results)


def map_leaves(function: Callable[[Array], Array], tree: Any) -> Any:
    """A function of arrays [R,...], applied to the leaves of a tree; `Rows` get one row [1,...] at a time."""

    def apply(leaf: Any) -> Any:
        return Rows(tuple(function(row[None])[0] for row in leaf.rows)) if isinstance(leaf, Rows) else function(leaf)

    return jax.tree.map(apply, tree, is_leaf=lambda leaf: isinstance(leaf, Rows))
