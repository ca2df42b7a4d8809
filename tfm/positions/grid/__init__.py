"""Positions in a window of a grid: how many rows and columns lie between a query and a key."""

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.ops import lookup


@struct.dataclass
class WindowBias(ScoreBias):
    """The bias of table [r,K,G] in a window of side x side places, r = (2 side - 1)^2, for every offset of rows and
    columns."""

    table: Array
    side: int = struct.field(pytree_node=False)

    def __call__(self, i, j):  # noqa: D102
        return jnp.einsum("BTSKG->BKGTS", lookup(self.table, self.offset(i[:, :, None], j[:, None, :])))

    def offset(self, i: Array, j: Array) -> Array:
        """The row of the table for the offset from key j to query i (Liu et al. 2021, eq. 4)."""
        rows = i // self.side - j // self.side + self.side - 1
        columns = i % self.side - j % self.side + self.side - 1
        return rows * (2 * self.side - 1) + columns
