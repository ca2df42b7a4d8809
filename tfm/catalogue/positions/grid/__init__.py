"""Positions in a grid, or in a window of one: how many rows and columns lie between a query and a key."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.ops import lookup


def offsets(rows: int, columns: int, prefix: int = 0) -> int:
    """Rows of the table of `GridBias`."""
    return (2 * rows - 1) * (2 * columns - 1) + (3 if prefix else 0)


@struct.dataclass
class GridBias(ScoreBias):
    """The bias of table [O,K,G] for every offset of rows and columns in a grid, or in a window of one.

    prefix: vectors that stand before the grid, such as [CLS]. Where there are some, the last three rows of the table
        are those of their queries, of their keys, and of both
    """

    table: Array
    rows: int = struct.field(pytree_node=False)
    columns: int = struct.field(pytree_node=False)
    prefix: int = struct.field(pytree_node=False, default=0)

    def __call__(self, i, j):
        return jnp.einsum("BTSKG->BKGTS", lookup(self.table, self.offset(i[:, :, None], j[:, None, :])))

    def offset(self, i: Array, j: Array) -> Array:
        """The row of the table for the offset from key j to query i (Liu et al. 2021, eq. 4)."""
        i, j = i - self.prefix, j - self.prefix
        rows = i // self.columns - j // self.columns + self.rows - 1
        columns = i % self.columns - j % self.columns + self.columns - 1
        offset = rows * (2 * self.columns - 1) + columns
        if not self.prefix:
            return offset
        first = offsets(self.rows, self.columns)
        offset = jnp.where(j < 0, first + 1, offset)
        return jnp.where(i < 0, jnp.where(j < 0, first + 2, first), offset)
