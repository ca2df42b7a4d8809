"""Passes of chunked attention: the pairs of a mask in disjoint parts, each in an order in which they are neighbours.

The keys of strided attention lie far apart, so that every block of keys holds some. In column order,

    8 positions, stride 3     0 3 6   1 4 7   2 5 -

they are neighbours: strided attention is local attention on transposed positions (Child et al. 2019, section 5.5). A
disjunction of near and strided keys is two passes, whose softmaxes are joined by their sums of exponentials.
"""

from functools import reduce
from operator import and_
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.attention.kernels.dropout import WeightDropout
from tfm.masks.distance import window
from tfm.masks.mask import Mask
from tfm.masks.place import local_blocks

# The size of blocks by which passes are compared.
BLOCK = 64

# More passes are taken where they visit at most this fraction of the pairs.
GAIN = 0.7


class ColumnOrder(NamedTuple):
    """An order of `length` positions: all that are 0 modulo the stride, all that are 1, and so on.

    Positions that the last row lacks stand at the end of their column.
    """

    stride: int
    length: int

    @property
    def rows(self) -> int:
        """Positions in a column."""
        return -(-self.length // self.stride)

    def sort(self, x: Array) -> Array:
        """x [B,T,...] in this order, with zeros for what the last row lacks."""
        x = jnp.pad(x, ((0, 0), (0, self.rows * self.stride - self.length), *((0, 0),) * (x.ndim - 2)))
        return x.reshape(len(x), self.rows, self.stride, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape)

    def unsort(self, x: Array) -> Array:
        """The inverse."""
        x = x.reshape(len(x), self.stride, self.rows, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape)
        return x[:, : self.length]

    def position(self, index: Array) -> Array:
        """The position at an index of this order; `length` or more if the last row lacks it."""
        return index % self.rows * self.stride + index // self.rows


class Pass(NamedTuple):
    """The mask of a pass, None for all pairs, and its order of positions; None: as they are."""

    mask: Mask | None
    order: ColumnOrder | None = None

    @property
    def ordered_mask(self) -> Mask:
        """The mask, asked at indices of the order."""
        assert self.mask is not None
        return self.mask if self.order is None else OrderedMask(self.mask, self.order)


@struct.dataclass
class OrderedMask(Mask):
    """A mask that is asked at indices of an order."""

    mask: Mask
    order: ColumnOrder = struct.field(pytree_node=False)

    def __call__(self, i, j):
        last = self.order.length - 1
        positions_i, positions_j = self.order.position(i), self.order.position(j)
        allowed = self.mask(jnp.minimum(positions_i, last), jnp.minimum(positions_j, last))
        return allowed & (positions_j <= last)[:, None, :]

    def blocks(self, block_q, block_k, queries, keys):
        left, right = (None if reach is None else reach // self.order.stride for reach in self.mask.reach)
        return (local_blocks(self.order.rows) & window(left, right)).blocks(block_q, block_k, queries, keys)


@struct.dataclass
class OrderedBias(ScoreBias):
    """A bias that is asked at indices of an order."""

    bias: ScoreBias
    order: ColumnOrder = struct.field(pytree_node=False)

    def apply(self, scores, i, j):
        return self.bias.apply(scores, self.order.position(i), self.order.position(j))


@struct.dataclass
class OrderedDropout:
    """A dropout of weights that is asked at indices of an order."""

    dropout: WeightDropout
    order: ColumnOrder = struct.field(pytree_node=False)

    def apply(self, weights: Array, i: Array, j: Array) -> Array:
        """See `WeightDropout.apply`."""
        return self.dropout.apply(weights, self.order.position(i), self.order.position(j))


# Which attention weights a kernel drops, by their positions.
Dropout = WeightDropout | OrderedDropout


def passes(mask: Mask | None, queries: int, keys: int) -> tuple[Pass, ...]:
    """The passes that visit few pairs. Static."""
    if mask is None or queries != keys:
        return (Pass(mask),)
    together = (_best_order(mask, queries),)
    for index, part in enumerate(mask.conjuncts):
        strided = [disjunct for disjunct in part.disjuncts if disjunct.spacing > 1]
        local = [disjunct for disjunct in part.disjuncts if disjunct.spacing == 1]
        if not part.is_static or len(strided) != 1 or not local:
            continue
        rest = [*mask.conjuncts[:index], *mask.conjuncts[index + 1 :]]
        local_mask = reduce(Mask.__or__, local)
        masks = reduce(and_, [*rest, local_mask]), reduce(and_, [*rest, strided[0], ~local_mask])
        in_two = tuple(_best_order(mask, queries) for mask in masks)
        return in_two if _pairs(in_two, queries) < GAIN * _pairs(together, queries) else together
    return together


def _best_order(mask: Mask, length: int) -> Pass:
    """A mask as one pass, in column order where that visits fewer pairs."""
    plain = Pass(mask)
    if mask.spacing == 1 or mask.spacing >= length:
        return plain
    ordered = Pass(mask, ColumnOrder(mask.spacing, length))
    return ordered if _pairs((ordered,), length) < GAIN * _pairs((plain,), length) else plain


def _pairs(parts: tuple[Pass, ...], length: int) -> int:
    """The blocks of pairs that passes visit."""
    return sum(int(np.sum(part.ordered_mask.blocks(BLOCK, BLOCK, length, length))) for part in parts)
