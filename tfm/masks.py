"""Masks are small objects that answer one question: may query position i see key position j?

They combine with `&` and `|`, hold arrays where the answer depends on the example, and are pytrees, so they pass through `jit`, `vmap`
and `scan`. Dense, chunked and cached attention ask the same object, each at the positions it is working on.
"""

from typing import NamedTuple

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.sharding import take_positions


class Mask:
    """`mask(i, j)`: query positions i [B or 1, T], key positions j [B or 1, S] -> bool [B or 1, T or 1, S]: True if i may see j."""

    def __call__(self, i: Array, j: Array) -> Array:
        """Whether query positions i may see key positions j."""
        raise NotImplementedError

    def __and__(self, other: "Mask") -> "Mask":
        return Both(self, other)

    def __or__(self, other: "Mask") -> "Mask":
        return Either(self, other)

    def dense(self, queries: int, keys: int | None = None) -> Array:
        """The whole mask, bool [B or 1, T, S]; as many keys as queries unless told."""
        i, j = jnp.arange(queries)[None], jnp.arange(keys or queries)[None]
        allowed = self(i, j)
        return jnp.broadcast_to(allowed, (allowed.shape[0], i.size, j.size))


@struct.dataclass
class Both(Mask):
    """Where both masks allow it."""

    one: Mask
    other: Mask

    def __call__(self, i, j):  # noqa: D102
        return self.one(i, j) & self.other(i, j)


@struct.dataclass
class Either(Mask):
    """Where at least one of two masks allows it."""

    one: Mask
    other: Mask

    def __call__(self, i, j):  # noqa: D102
        return self.one(i, j) | self.other(i, j)


@struct.dataclass
class Window(Mask):
    """See `causal` and `window`."""

    left: int | None = struct.field(pytree_node=False)
    right: int | None = struct.field(pytree_node=False)

    def __call__(self, i, j):  # noqa: D102
        distance = j[:, None, :] - i[:, :, None]
        allowed = jnp.ones_like(distance, dtype=bool)
        if self.left is not None:
            allowed &= distance >= -self.left
        if self.right is not None:
            allowed &= distance <= self.right
        return allowed


@struct.dataclass
class Padding(Mask):
    """See `padding`."""

    valid: Array

    def __call__(self, i, j):  # noqa: D102
        return take_positions(self.valid, j)[:, None, :]


@struct.dataclass
class Segments(Mask):
    """See `segments`."""

    queries: Array
    keys: Array

    def __call__(self, i, j):  # noqa: D102
        return take_positions(self.queries, i)[:, :, None] == take_positions(self.keys, j)[:, None, :]


@struct.dataclass
class Prefix(Mask):
    """See `prefix`."""

    lengths: Array

    def __call__(self, i, j):  # noqa: D102
        return (j < self.lengths[:, None])[:, None, :]


@struct.dataclass
class Since(Mask):
    """See `since`."""

    starts: Array

    def __call__(self, i, j):  # noqa: D102
        return (j >= self.starts[:, None])[:, None, :]


@struct.dataclass
class Constant(Mask):
    """One answer, a scalar, for all positions."""

    allowed: Array

    def __call__(self, i, j):  # noqa: D102
        return jnp.broadcast_to(self.allowed, (1, i.shape[1], j.shape[1]))


def causal() -> Mask:
    """No position sees a later one."""
    return Window(None, 0)


def window(left: int | None, right: int | None) -> Mask:
    """A position sees `left` positions before itself and `right` after; None means all of them on that side."""
    return Window(left, right)


def padding(valid: Array) -> Mask:
    """Keys that exist: valid [B,S], True for a token and False for padding."""
    return Padding(jnp.asarray(valid, bool))


def segments(queries: Array, keys: Array | None = None) -> Mask:
    """Positions see those of their own segment: ids [B,T], and [B,S] where the keys are another sequence."""
    return Segments(queries, queries if keys is None else keys)


def prefix(lengths: Array) -> Mask:
    """Every position sees the first `lengths` [B] keys; `causal() | prefix(n)` is the prefix language model (Raffel et al. 2020)."""
    return Prefix(lengths)


def left_padding(starts: Array) -> Mask:
    """Every position sees the keys from `starts` [B] on: what is left of them is padding."""
    return Since(starts)


class MaskParts(NamedTuple):
    """A mask taken apart: a pair is allowed where all parts allow it. `keys` ask about the key alone, `rest` is whatever else there is."""

    window: Window = Window(None, None)
    segments: Segments | None = None
    keys: tuple[Mask, ...] = ()
    rest: tuple[Mask, ...] = ()


def decompose(mask: Mask | None) -> MaskParts:
    """The parts of a mask, for kernels that know some kinds of masks: windows become one, a second mask of segments is part of the rest."""
    match mask:
        case None:
            return MaskParts()
        case Both(one, other):
            a, b = decompose(one), decompose(other)
            window = Window(_least(a.window.left, b.window.left), _least(a.window.right, b.window.right))
            second = (b.segments,) if a.segments and b.segments else ()
            return MaskParts(window, a.segments or b.segments, a.keys + b.keys, a.rest + b.rest + second)
        case Window():
            return MaskParts(window=mask)
        case Segments():
            return MaskParts(segments=mask)
        case Padding() | Prefix() | Since():
            return MaskParts(keys=(mask,))
    return MaskParts(rest=(mask,))


def _least(one: int | None, other: int | None) -> int | None:
    """The smaller of two reaches, of which None has no end."""
    return other if one is None else one if other is None else min(one, other)
