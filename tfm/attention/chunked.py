"""Attention in blocks: no array ever holds the scores of all queries and keys.

Queries are taken a block at a time. For each block, those blocks of keys that a window of the mask lets it see pass by, and a softmax is
kept that is right for the keys so far: the largest score, the sum of the exponentials below it, and the mix of values that belongs to
them (Rabe & Staats 2021, section 2; Dao et al. 2022, algorithm 1). The backward pass computes the scores again, block by block (Dao et al.
2022, algorithm 4), so that memory grows with the length and not with its square.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from tfm.attention.bias import ScoreBias
from tfm.axes import platform
from tfm.masks import Mask, decompose

# Scores of forbidden pairs. Finite, so that a query that may see nothing averages all values instead of giving NaN.
MASK_VALUE = -1e30

# Scores of a block of queries and a block of keys. On a CPU they should stay in its cache (M7: 120 ms instead of
# 1,170).
SCORES = {"cpu": 1 << 18}
SCORES_ELSEWHERE = 1 << 24
SMALLEST, LARGEST = 64, 1024


class Blocks(NamedTuple):
    """Queries [P,B,K,G,C,H] in P blocks of C, keys and values [Q,B,K,C,H] in Q of them, and how many there are before padding."""

    q: Array
    k: Array
    v: Array
    queries: int
    keys: int


@jax.custom_vjp
def flash(q: Array, k: Array, v: Array, mask: Mask | None, bias: ScoreBias | None) -> Array:
    """q [B,T,K,G,H], k and v [B,S,K,H] -> [B,T,K,G,H] in the dtype of v; softmax in float32.

    Equal to `tfm.attend`, but for queries that may see nothing: under a window, they get the mean of the values in the blocks that were
    looked at, not of all. It has a gradient, but no forward mode and no second derivative.
    """
    return _forward(q, k, v, mask, bias)[0]


def _forward(q: Array, k: Array, v: Array, mask: Mask | None, bias: ScoreBias | None):
    blocks = _blocks(q, k, v)

    def rows(inputs):
        place, q = inputs

        def see(n, carry):
            top, mass, y = carry
            scores = _scores(blocks, q, place, n, mask, bias)[0]
            new = jnp.maximum(top, scores.max(-1))
            weights, fade = jnp.exp(scores - new[..., None]), jnp.exp(top - new)
            return new, mass * fade + weights.sum(-1), y * fade[..., None] + _mix(weights, blocks.v[n])

        empty = jnp.full(q.shape[:-1], -jnp.inf), jnp.zeros(q.shape[:-1]), jnp.zeros((*q.shape[:-1], v.shape[-1]))
        top, mass, y = jax.lax.fori_loop(*_seen(blocks, place, mask), see, empty)
        return (y / mass[..., None]).astype(v.dtype), top, mass

    y, top, mass = jax.lax.map(rows, (jnp.arange(len(blocks.q)), blocks.q))
    return _joined(y, q.shape[1]), (q, k, v, mask, bias, y, top, mass)


def _backward(kept, slope: Array):
    """The gradients for q, k, v and the floats of the bias, from what the forward pass kept."""
    q, k, v, mask, bias, y, top, mass = kept
    blocks = _blocks(q, k, v)
    slopes = _cut(slope, block_size(q))

    def rows(sums, inputs):
        place, q, y, top, mass, slope = inputs
        drift = (slope.astype(jnp.float32) * y.astype(jnp.float32)).sum(-1)

        def see(n, carry):
            dq, dk, dv, dbias = carry
            scores, allowed, back = _scores(blocks, q, place, n, mask, bias)
            weights = jnp.exp(scores - top[..., None]) / mass[..., None]
            dweights = jnp.einsum("BKGTH,BKSH->BKGTS", slope, blocks.v[n], preferred_element_type=jnp.float32)
            dscores = jnp.where(allowed, weights * (dweights - drift[..., None]), 0)
            dq = dq + _mix(dscores, blocks.k[n])
            dk, dv = _added(dk, n, _gathered(dscores, q)), _added(dv, n, _gathered(weights, slope))
            return dq, dk, dv, jax.tree.map(jnp.add, dbias, back(dscores))

        dq, *sums = jax.lax.fori_loop(*_seen(blocks, place, mask), see, (jnp.zeros(q.shape), *sums))
        return sums, dq

    sums = [jnp.zeros(blocks.k.shape), jnp.zeros(blocks.v.shape), jax.tree.map(jnp.zeros_like, bias)]
    (dk, dv, dbias), dq = jax.lax.scan(rows, sums, (jnp.arange(len(blocks.q)), blocks.q, y, top, mass, slopes))
    dq = _joined(dq, q.shape[1]) * q.shape[-1] ** -0.5
    return (
        dq.astype(q.dtype),
        _joined(dk, k.shape[1]).astype(k.dtype),
        _joined(dv, k.shape[1]).astype(v.dtype),
        None,
        dbias,
    )


flash.defvjp(_forward, _backward)


def _blocks(q: Array, k: Array, v: Array) -> Blocks:
    """Queries, divided by the root of the head size, keys and values in blocks."""
    size = block_size(q)
    return Blocks(_cut(q * q.shape[-1] ** -0.5, size), _cut(k, size), _cut(v, size), q.shape[1], k.shape[1])


def block_size(q: Array) -> int:
    """How many queries [B,T,K,G,H], and keys, are in a block: a power of two."""
    root = math.isqrt(SCORES.get(platform(), SCORES_ELSEWHERE) * q.shape[1] * q.shape[-1] // q.size)
    return min(max(SMALLEST, 1 << max(root.bit_length() - 1, 0)), LARGEST)


def _cut(x: Array, size: int) -> Array:
    """[B,T,...,H] -> [P,B,...,C,H]: blocks of at most `size` positions, with zeros where the last one is not full."""
    size = min(size, x.shape[1])
    x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % size), *((0, 0),) * (x.ndim - 2)))
    return jnp.moveaxis(x.reshape(x.shape[0], -1, size, *x.shape[2:]), (1, 2), (0, -2))


def _joined(blocks: Array, length: int) -> Array:
    """[P,B,...,C,H] -> [B,T,...,H], the inverse."""
    blocks = jnp.moveaxis(blocks, (0, -2), (1, 2))
    return blocks.reshape(blocks.shape[0], -1, *blocks.shape[3:])[:, :length]


def _seen(blocks: Blocks, place: Array, mask: Mask | None) -> tuple[Any, Any]:
    """The first block of keys that a window lets a block of queries see, and the one after the last; at least one."""
    size, step, number = blocks.q.shape[-2], blocks.k.shape[-2], len(blocks.k)
    window = decompose(mask).window
    first = 0 if window.left is None else jnp.clip((place * size - window.left) // step, 0, number - 1)
    if window.right is None:
        return first, number
    return first, jnp.clip(((place + 1) * size - 1 + window.right) // step + 1, first + 1, number)


def _scores(blocks: Blocks, q: Array, place: Array, n: Array, mask: Mask | None, bias: ScoreBias | None):
    """float32 scores [B,K,G,C,C] of a block of queries for block n of keys, which pairs are allowed, and what turns slopes of these scores
    into those of the bias. Keys that only pad the last block have no weight at all, not even where nothing may be seen."""
    i = jnp.minimum(place * q.shape[-2] + jnp.arange(q.shape[-2]), blocks.queries - 1)[None]
    places = (n * blocks.k.shape[-2] + jnp.arange(blocks.k.shape[-2]))[None]
    j = jnp.minimum(places, blocks.keys - 1)
    scores = jnp.einsum("BKGTH,BKSH->BKGTS", q, blocks.k[n], preferred_element_type=jnp.float32)
    back = lambda slopes: None
    if bias is not None:
        added, turn = jax.vjp(lambda bias: bias(i, j), bias)
        scores = scores + added
        back = lambda slopes: turn(slopes if len(added) > 1 else slopes.sum(0, keepdims=True))[0]
    allowed = (places < blocks.keys)[:, None, None, None]
    if mask is not None:
        allowed = allowed & mask(i, j)[:, None, None]
        scores = jnp.where(allowed, scores, MASK_VALUE)
    return jnp.where((places < blocks.keys)[:, None, None, None], scores, -jnp.inf), allowed, back


def _mix(weights: Array, v: Array) -> Array:
    """weights [B,K,G,T,S], v [B,K,S,H] -> float32 [B,K,G,T,H]."""
    return jnp.einsum("BKGTS,BKSH->BKGTH", weights.astype(v.dtype), v, preferred_element_type=jnp.float32)


def _gathered(weights: Array, q: Array) -> Array:
    """weights [B,K,G,T,S], q [B,K,G,T,H] -> float32 [B,K,S,H]."""
    return jnp.einsum("BKGTS,BKGTH->BKSH", weights.astype(q.dtype), q, preferred_element_type=jnp.float32)


def _added(sums: Array, n: Array, more: Array) -> Array:
    """The sums of all blocks with more of block n."""
    return jax.lax.dynamic_update_index_in_dim(sums, sums[n] + more, n, axis=0)
