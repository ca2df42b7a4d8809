"""Windows of a grid as rows of a batch, so that attention within them is attention to short rows."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from tfm.masks.by_example import segments
from tfm.masks.mask import Mask
from tfm.sharding import fold_rows, named_sharding, replicate, replicate_length, reshape_rows, spec_of


class WindowPartition(NamedTuple):
    """A grid of rows x columns in windows of size x size, which begin `shift` rows and columns late.

    Where windows do not divide the grid, rows and columns of zeros are added at its end. The windows that a shift cuts
    off at the borders are put together to full ones, as if the grid were a torus: their pieces are segments, which do
    not see each other (Liu et al. 2021, section 3.2, "Efficient batch computation").
    """

    rows: int
    columns: int
    size: int
    shift: int

    @property
    def counts(self) -> tuple[int, int]:
        """How many windows lie below and beside each other."""
        return -(-self.rows // self.size), -(-self.columns // self.size)

    def split(self, x: Array) -> Array:
        """x [B,T,D] of the T places of the grid, row by row -> its n windows [B*n,S,D] of S places each."""
        x = replicate_length(x)
        down, across = self.counts
        x = reshape_rows(x, x.shape[0], self.rows, self.columns, x.shape[-1])
        padding = (down * self.size - self.rows, across * self.size - self.columns)
        x = jnp.pad(x, ((0, 0), (0, padding[0]), (0, padding[1]), (0, 0)))
        x = jnp.roll(x, (-self.shift, -self.shift), (1, 2)) if self.shift else x
        x = reshape_rows(x, x.shape[0], down, self.size, across, self.size, x.shape[-1]).swapaxes(2, 3)
        return fold_rows(reshape_rows(x, x.shape[0], down * across, self.size**2, x.shape[-1]))

    def merge(self, windows: Array) -> Array:
        """windows [B*n,S,D] -> [B,T,D], the inverse."""
        down, across = self.counts
        batch = windows.shape[0] // (down * across)
        x = reshape_rows(windows, batch, down, across, self.size, self.size, windows.shape[-1]).swapaxes(2, 3)
        x = reshape_rows(x, batch, down * self.size, across * self.size, x.shape[-1])
        x = jnp.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x
        x = x[:, : self.rows, : self.columns]
        return reshape_rows(x, batch, self.rows * self.columns, x.shape[-1])

    def mask(self, like: Array) -> Mask | None:
        """Which places of a window see each other, for the windows of examples like [B,...]; None: all."""
        if not self.shift:
            return None
        ids = jnp.asarray(self.segments())[None]
        mesh_axis = spec_of(like)[0]
        sharding = named_sharding(like, like, mesh_axis, None, None)
        return segments(fold_rows(jnp.broadcast_to(ids, (like.shape[0], *ids.shape[1:]), out_sharding=sharding)))

    def dense(self, weights: Array) -> Array:
        """Weights [B*n,K,G,S,S] of windows -> [B,K,G,T,T] of all pairs of places, 0 where they share no window.

        Those of zeros at the end of the grid are left out, so that rows may sum to less than 1.
        """
        down, across = self.counts
        places = jnp.arange(1, self.rows * self.columns + 1, dtype=jnp.float32)[None, :, None]
        index = self.split(places)[..., 0].astype(jnp.int32) - 1  # [n,S]; -1 for a zero
        index = jnp.where(index < 0, self.rows * self.columns, index)
        weights = replicate(weights)
        weights = weights.reshape(-1, down * across, *weights.shape[1:])
        dense = jnp.zeros((len(weights), *weights.shape[2:4], *2 * (self.rows * self.columns,)), weights.dtype)
        rows = jnp.moveaxis(weights, 1, 3)
        return dense.at[:, :, :, index[:, :, None], index[:, None, :]].set(rows, mode="drop")

    def segments(self) -> np.ndarray:
        """int32 [n,S], the segment of each place of each window."""
        down, across = self.counts
        sides = down * self.size, across * self.size
        row, column = ((np.arange(side) + self.shift) // side for side in sides)  # 1 where the torus has begun again
        ids = (2 * row[:, None] + column).reshape(down, self.size, across, self.size)
        return ids.swapaxes(1, 2).reshape(down * across, -1).astype(np.int32)
