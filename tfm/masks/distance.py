"""Static masks: what a query may see depends on the distance of the key alone."""

from functools import reduce
from operator import and_
from typing import NamedTuple

from flax import struct

from tfm.masks.mask import Mask


def causal() -> Mask:
    """No position sees a later one."""
    return Window(None, 0)


def window(left: int | None, right: int | None) -> Mask:
    """A position sees `left` positions before itself and `right` after; None means all positions on that side."""
    return Window(left, right)


def strided(stride: int) -> Mask:
    """A position sees those at distances that are multiples of the stride.

    Strided attention (Child et al. 2019, section 4.2): `causal() & (window(n, 0) | strided(n))`.
    Dilated window (Beltagy et al. 2020, section 3.1): `window(n * d, n * d) & strided(d)`. Raises ValueError for a
    stride below 1.
    """
    if stride < 1:
        raise ValueError(f"stride={stride} must be at least 1")
    return StridedMask(stride)


def as_window(mask: Mask) -> "Window | None":
    """A mask as one `Window`; None if it is no window, nor a conjunction (`&`) of windows."""
    return Window(*mask.reach) if all(isinstance(part, Window) for part in mask.conjuncts) else None


def decompose(mask: Mask | None) -> "MaskParts":
    """The parts of a mask, for kernels that know some of them. Windows become one; a second mask of segments is part of
    the rest."""
    conjuncts = () if mask is None else mask.conjuncts
    static = [part for part in conjuncts if part.is_static] or [Window(None, None)]
    pattern = reduce(and_, static)
    arrays = [part for part in conjuncts if not part.is_static]
    with_ids = [part for part in arrays if part.segment_ids is not None]
    without_ids = [part for part in arrays if part.segment_ids is None]
    return MaskParts(
        pattern=as_window(pattern) or pattern,
        segments=with_ids[0] if with_ids else None,
        keys=tuple(part for part in without_ids if part.key_only),
        rest=(*(part for part in without_ids if not part.key_only), *with_ids[1:]),
    )


@struct.dataclass
class Window(Mask):
    """See `causal` and `window`."""

    left: int | None = struct.field(pytree_node=False)
    right: int | None = struct.field(pytree_node=False)

    def __call__(self, i, j):
        distance = j[:, None, :] - i[:, :, None]
        allowed = distance == distance
        if self.left is not None:
            allowed &= distance >= -self.left
        if self.right is not None:
            allowed &= distance <= self.right
        return allowed

    def between(self, first_i, last_i, first_j, last_j):
        visible = super().between(first_i, last_i, first_j, last_j)
        if self.left is not None:
            visible &= last_j - first_i >= -self.left
        if self.right is not None:
            visible &= first_j - last_i <= self.right
        return visible & (self.left is None or self.right is None or self.left + self.right >= 0)

    @property
    def reach(self):
        return self.left, self.right

    @property
    def shift_invariant(self):
        return True


class MaskParts(NamedTuple):
    """Masks that together allow what a mask allows: the static pattern, a mask of segments, masks of keys alone, and
    the others."""

    pattern: Mask = Window(None, None)
    segments: Mask | None = None
    keys: tuple[Mask, ...] = ()
    rest: tuple[Mask, ...] = ()


@struct.dataclass
class StridedMask(Mask):
    """See `strided`."""

    stride: int = struct.field(pytree_node=False)

    def __call__(self, i, j):
        return (j[:, None, :] - i[:, :, None]) % self.stride == 0

    def between(self, first_i, last_i, first_j, last_j):
        smallest, largest = first_j - last_i, last_j - first_i
        return largest // self.stride > (smallest - 1) // self.stride  # a multiple of the stride lies between them

    @property
    def spacing(self):
        return self.stride

    @property
    def shift_invariant(self):
        return True
