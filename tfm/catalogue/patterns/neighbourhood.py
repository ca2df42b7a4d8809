"""The neighbourhood of each patch of a grid (NAT: Hassani et al. 2023, section 3.1)."""

from typing import TypeVar

import numpy as np
from flax import struct
from jax import Array

from tfm.catalogue.options.patterns import Neighbourhood
from tfm.config.model import Config
from tfm.interfaces import AttentionContext, LayerCall, refuse
from tfm.masks.mask import Mask
from tfm.patterns import Pattern

Places = TypeVar("Places", Array, np.ndarray)


@struct.dataclass
class GridNeighbours(Mask):
    """A position of a grid of rows x columns, numbered row by row, sees a square of size x size positions around it,
    which the borders move inwards."""

    rows: int = struct.field(pytree_node=False)
    columns: int = struct.field(pytree_node=False)
    size: int = struct.field(pytree_node=False)

    def __call__(self, i, j):
        return self.between(
            *(positions[:, :, None] for positions in (i, i)), *(positions[:, None] for positions in (j, j))
        )

    def between(self, first_i, last_i, first_j, last_j):
        allowed = None
        for queries, keys, side in zip(
            self._sides(first_i, last_i), self._sides(first_j, last_j), self._shape, strict=True
        ):
            window = min(self.size, side)
            first, last = ((end - self.size // 2).clip(0, side - window) for end in queries)
            meets = (keys[0] < last + window) & (keys[1] >= first)
            allowed = meets if allowed is None else allowed & meets
        return allowed

    @property
    def reach(self):
        rows, columns = (min(self.size, side) - 1 for side in self._shape)
        return (rows * self.columns + columns,) * 2

    @property
    def _shape(self) -> tuple[int, int]:
        return self.rows, self.columns

    def _sides(self, first: Places, last: Places) -> tuple[tuple[Places, Places], tuple[Places, Places]]:
        """The first and the last row, and column, of the positions from `first` to `last`; those of several rows have
        all columns."""
        rows = first // self.columns, last // self.columns
        is_row = (rows[0] == rows[1]).astype(np.int32)
        left, right = first % self.columns, last % self.columns
        return rows, (left * is_row, right * is_row + (self.columns - 1) * (1 - is_row))


def mask(options: Neighbourhood, config: Config, is_causal: bool) -> Mask:
    """The neighbourhoods of the grid of a model."""
    assert config.grid is not None, "the options see to it that there is a grid"
    return GridNeighbours(*config.grid, options.window)


def prepare(call: LayerCall[Neighbourhood, None, None], context: AttentionContext) -> Mask:
    """The mask. Raises VariantError for a decoder and for tokens that fill no grid."""
    rows, columns = call.config.grid or (0, 0)
    if context.causal or context.positions.shape[1] != rows * columns:
        grid = f"is for encoders of images of {rows} x {columns} patches"
        refuse(call.options, f"{grid}, and there are {context.positions.shape[1]} tokens", "read images of input.size")
    return mask(call.options, call.config, is_causal=False)


PATTERN = Pattern(mask, prepare=prepare)
