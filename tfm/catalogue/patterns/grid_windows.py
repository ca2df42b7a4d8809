"""Static masks over a grid, whose positions are numbered row by row."""

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.masks.mask import Mask


def grid_windows(rows: int, columns: int, size: int, shift: int = 0) -> Mask:
    """A position of a grid sees those of its window of `size` x `size`; windows begin `shift` rows and columns late.

    Windows at the borders are cut off (Swin: Liu et al. 2021, section 3.2 and figure 4). Raises ValueError for sizes
    below 1 and for a shift outside of 0..size - 1.
    """
    if min(rows, columns, size) < 1:
        raise ValueError(f"rows={rows}, columns={columns} and size={size} must be at least 1")
    if not 0 <= shift < size:
        raise ValueError(f"shift={shift} must be at least 0 and less than size={size}")
    return GridWindows(rows, columns, size, shift)


@struct.dataclass
class GridWindows(Mask):
    """See `grid_windows`."""

    rows: int = struct.field(pytree_node=False)
    columns: int = struct.field(pytree_node=False)
    size: int = struct.field(pytree_node=False)
    shift: int = struct.field(pytree_node=False)

    def __call__(self, i, j):
        (row_i, column_i), (row_j, column_j) = self._window(i), self._window(j)
        same_row = row_i[:, :, None] == row_j[:, None, :]
        return same_row & (column_i[:, :, None] == column_j[:, None, :])

    def between(self, first_i, last_i, first_j, last_j):
        counts: Any = _counts(self.rows, self.columns, self.size, self.shift)
        if not isinstance(first_i, np.ndarray):
            counts = jnp.asarray(counts)

        def windows(first: Any, last: Any) -> Any:
            """Which windows the positions from first to last lie in."""
            ends = (end.clip(0, len(counts) - 1) for end in (last + 1, first))
            return (counts[next(ends)] > counts[next(ends)]).astype(np.int32)

        seen, shown = windows(first_i[..., 0], last_i[..., 0]), windows(first_j[..., 0, :], last_j[..., 0, :])
        return seen @ shown.swapaxes(-1, -2) > 0

    @property
    def reach(self):
        distance = (self.size - 1) * (self.columns + 1)
        return distance, distance

    def _window(self, positions: Array) -> tuple[Array, Array]:
        """Positions -> the row and the column of their windows; those cut off at the start are in row or column -1."""
        return (positions // self.columns - self.shift) // self.size, (
            positions % self.columns - self.shift
        ) // self.size


@functools.cache
def _counts(rows: int, columns: int, size: int, shift: int) -> np.ndarray:
    """int32 [rows * columns + 1, windows]: how many of the first positions lie in each window."""
    row, column = np.divmod(np.arange(rows * columns), columns)
    window = np.stack([(row - shift) // size, (column - shift) // size], axis=1)
    _, index = np.unique(window, axis=0, return_inverse=True)
    inside = index.reshape(-1, 1) == np.arange(index.max() + 1)
    return np.concatenate([np.zeros_like(inside[:1]), inside]).cumsum(0, dtype=np.int32)
