"""Static masks: what a query may see depends on the distance of the key alone."""

import numpy as np
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
    Dilated window (Beltagy et al. 2020, section 3.1): `window(n * d, n * d) & strided(d)`.
    """
    if stride < 1:
        raise ValueError(f"stride={stride} must be at least 1")
    return Strided(stride)


@struct.dataclass
class Window(Mask):
    """See `causal` and `window`."""

    left: int | None = struct.field(pytree_node=False)
    right: int | None = struct.field(pytree_node=False)

    def __call__(self, i, j):  # noqa: D102
        distance = j[:, None, :] - i[:, :, None]
        allowed = distance == distance
        if self.left is not None:
            allowed &= distance >= -self.left
        if self.right is not None:
            allowed &= distance <= self.right
        return allowed

    def blocks(self, block_q, block_k, queries, keys):  # noqa: D102
        smallest, largest = _distances(block_q, block_k, queries, keys)
        smallest = smallest if self.left is None else np.maximum(smallest, -self.left)
        largest = largest if self.right is None else np.minimum(largest, self.right)
        return smallest <= largest

    @property
    def as_window(self):  # noqa: D102
        return self

    def intersection(self, window: "Window") -> "Window":
        """The window that allows what both allow."""
        return Window(_smaller(self.left, window.left), _smaller(self.right, window.right))


@struct.dataclass
class Strided(Mask):
    """See `strided`."""

    stride: int = struct.field(pytree_node=False)

    def __call__(self, i, j):  # noqa: D102
        return (j[:, None, :] - i[:, :, None]) % self.stride == 0

    def blocks(self, block_q, block_k, queries, keys):  # noqa: D102
        smallest, largest = _distances(block_q, block_k, queries, keys)
        return largest // self.stride > (smallest - 1) // self.stride  # a multiple of the stride lies between them


def _smaller(a: int | None, b: int | None) -> int | None:
    """The smaller of two bounds; None is no bound."""
    return min((bound for bound in (a, b) if bound is not None), default=None)


def _distances(block_q: int, block_k: int, queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and the largest distance j - i, int [P,Q], of queries i and keys j of two blocks."""
    first_i, first_j = np.arange(0, queries, block_q)[:, None], np.arange(0, keys, block_k)[None]
    last_i, last_j = np.minimum(first_i + block_q, queries) - 1, np.minimum(first_j + block_k, keys) - 1
    return first_j - last_i, last_j - first_i
