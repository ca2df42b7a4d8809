"""Attention in blocks: no array ever holds the scores of all queries and keys.

Queries are taken a block at a time. For each block of queries, the loop visits the blocks of keys that `mask.blocks`
says it may see. It keeps a softmax of the keys so far: the largest score, the sum of the exponentials below it, and
their weighted sum of values (Rabe & Staats 2021, section 2; Dao et al. 2022, algorithm 1). The backward pass computes
the scores again, block by block (Dao et al. 2022, algorithm 4), so that memory grows with the length and not with its
square.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from tfm.attention.attend import attend, check_attention
from tfm.attention.bias import ScoreBias
from tfm.attention.kernels.block_sizes import block_size
from tfm.attention.kernels.dropout import WeightDropout, weight_dropout
from tfm.attention.kernels.passes import Dropout, OrderedBias, OrderedDropout, Pass, passes
from tfm.attention.kernels.shards import on_shards
from tfm.masks.mask import MASK_VALUE, Mask, blocks_in_sight


class Blocks(NamedTuple):
    """Inputs in P blocks of queries and Q blocks of keys, at most C positions each.

    q: [P,B,K,G,C,H], divided by the root of H
    k, v: [Q,B,K,C,H]
    queries, keys: lengths without the padding of the last block
    mask, bias, dropout: of all positions
    """

    q: Array
    k: Array
    v: Array
    queries: int
    keys: int
    mask: Mask | None
    bias: ScoreBias | None
    dropout: Dropout | None


def chunked(
    q: Array,
    k: Array,
    v: Array,
    mask: Mask | None = None,
    bias: ScoreBias | None = None,
    rate: float = 0.0,
    key: Array | None = None,
) -> Array:
    """q [B,T,K,G,H], k and v [B,S,K,H] -> [B,T,K,G,H] in the dtype of v; softmax in float32.

    Equal to `tfm.attend`, except for a query that may see nothing: it gets the mean of the values in the blocks that
    were visited. `rate` and `key` drop attention weights, others than there. It has a gradient, but no forward mode and
    no second derivative; `tfm.attend` has.
    """
    check_attention(q, k, v, mask, rate, key)
    return _chunked(q, k, v, mask, bias, weight_dropout(q, rate, key))


@on_shards
def _chunked(
    q: Array, k: Array, v: Array, mask: Mask | None, bias: ScoreBias | None, dropout: WeightDropout | None = None
) -> Array:
    """`chunked` of the rows and heads of one device."""
    if not q.size or not k.size:
        return attend(q, k, v, mask, bias)
    parts = [_in_order(part, q, k, v, bias, dropout) for part in passes(mask, q.shape[1], k.shape[1])]
    if len(parts) == 1:
        return parts[0][0]
    shares = jax.nn.softmax(jnp.stack([log_mass for _, log_mass in parts]), axis=0)[..., None]
    return sum(share * y for share, (y, _) in zip(shares, parts, strict=True)).astype(v.dtype)


def _in_order(
    part: Pass, q: Array, k: Array, v: Array, bias: ScoreBias | None, dropout: WeightDropout | None
) -> tuple[Array, Array]:
    """`flash` over the pairs of one pass, in its order of positions."""
    order = part.order
    if order is None:
        return flash(q, k, v, part.mask, bias, dropout)
    ordered_bias = None if bias is None else OrderedBias(bias, order)
    ordered_dropout = None if dropout is None else OrderedDropout(dropout, order)
    y, log_mass = flash(*map(order.sort, (q, k, v)), part.ordered_mask, ordered_bias, ordered_dropout)
    return order.unsort(y), order.unsort(log_mass)


@jax.custom_vjp
def flash(
    q: Array, k: Array, v: Array, mask: Mask | None, bias: ScoreBias | None, dropout: Dropout | None = None
) -> tuple[Array, Array]:
    """`chunked` on one device, in one pass -> [B,T,K,G,H], and float32 [B,T,K,G]: the logarithm of the sum of the
    exponentials of all scores of a query."""
    return _forward(q, k, v, mask, bias, dropout)[0]


def _forward(q: Array, k: Array, v: Array, mask: Mask | None, bias: ScoreBias | None, dropout: Dropout | None):
    """Both outputs, and the residuals of the backward pass."""
    blocks = _blocks(q, k, v, mask, bias, dropout)
    order, counts = visible_blocks(blocks)

    def query_block(inputs):
        index_q, q = inputs

        def visit(step, carry):
            max_score, mass, y = carry
            index_k = order[index_q, step]
            scores = _scores(blocks, q, index_q, index_k)[0]
            new_max = jnp.maximum(max_score, scores.max(-1))
            weights = jnp.exp(scores - new_max[..., None])
            decay = jnp.exp(max_score - new_max)
            block = _weighted_sum(_drop(blocks, weights, index_q, index_k), blocks.v[index_k])
            return new_max, mass * decay + weights.sum(-1), y * decay[..., None] + block

        shape = q.shape[:-1]
        empty = jnp.full(shape, -jnp.inf), jnp.zeros(shape), jnp.zeros((*shape, v.shape[-1]))
        with _loop_scope(blocks):
            max_score, mass, y = jax.lax.fori_loop(0, counts[index_q], visit, empty)
        return (y / mass[..., None]).astype(v.dtype), max_score, mass

    y, max_score, mass = jax.lax.map(query_block, (jnp.arange(len(blocks.q)), blocks.q))
    log_mass = _join((max_score + jnp.log(mass))[..., None], q.shape[1])[..., 0]
    return (_join(y, q.shape[1]), log_mass), (q, k, v, mask, bias, dropout, y, max_score, mass)


def _backward(residuals, gradients: tuple[Array, Array]):
    """The gradients of q, k, v and of the float arrays of the bias."""
    q, k, v, mask, bias, dropout, *outputs = residuals
    dy, dlog_mass = gradients
    blocks = _blocks(q, k, v, mask, bias, dropout)
    order, counts = visible_blocks(blocks)

    def query_block(sums, inputs):
        index_q, q, y, max_score, mass, dy, dlog_mass = inputs
        delta = (dy.astype(jnp.float32) * y.astype(jnp.float32)).sum(-1) - dlog_mass[..., 0]

        def visit(step, carry):
            dq, dk, dv, dbias = carry
            index_k = order[index_q, step]
            scores, allowed, pullback = _scores(blocks, q, index_q, index_k)
            weights = jnp.exp(scores - max_score[..., None]) / mass[..., None]
            dweights = jnp.einsum("BKGTH,BKSH->BKGTS", dy, blocks.v[index_k], preferred_element_type=jnp.float32)
            dweights = _drop(blocks, dweights, index_q, index_k)
            dscores, dbias_block = pullback(jnp.where(allowed, weights * (dweights - delta[..., None]), 0))
            dq = dq + _weighted_sum(dscores, blocks.k[index_k])
            dk = _add_block(dk, index_k, _sum_over_queries(dscores, q))
            dv = _add_block(dv, index_k, _sum_over_queries(_drop(blocks, weights, index_q, index_k), dy))
            return dq, dk, dv, jax.tree.map(jnp.add, dbias, dbias_block)

        with _loop_scope(blocks):
            dq, *sums = jax.lax.fori_loop(0, counts[index_q], visit, (jnp.zeros(q.shape), *sums))
        return sums, dq

    sums = [jnp.zeros(blocks.k.shape), jnp.zeros(blocks.v.shape), jax.tree.map(jnp.zeros_like, _partition(bias)[0])]
    gradient_blocks = (_split(gradient, blocks.q.shape[-2]) for gradient in (dy, dlog_mass[..., None]))
    inputs = jnp.arange(len(blocks.q)), blocks.q, *outputs, *gradient_blocks
    (dk, dv, dbias), dq = jax.lax.scan(query_block, sums, inputs)
    dq = _join(dq, q.shape[1]) * q.shape[-1] ** -0.5
    return (
        dq.astype(q.dtype),
        _join(dk, k.shape[1]).astype(k.dtype),
        _join(dv, k.shape[1]).astype(v.dtype),
        None,
        dbias,
        None,
    )


flash.defvjp(_forward, _backward)


def _blocks(q: Array, k: Array, v: Array, mask: Mask | None, bias: ScoreBias | None, dropout: Dropout | None) -> Blocks:
    """The inputs in blocks."""
    size = block_size(q, k.shape[1], mask)
    q_blocks = _split(q * q.shape[-1] ** -0.5, size)
    return Blocks(q_blocks, _split(k, size), _split(v, size), q.shape[1], k.shape[1], mask, bias, dropout)


def visible_blocks(blocks: Blocks) -> tuple[Array, Array]:
    """The blocks of keys that each block of queries visits, int32 [P, at most Q], and their counts [P], at least 1."""
    if blocks.mask is None:
        visible: np.ndarray | Array = np.ones((len(blocks.q), len(blocks.k)), bool)
        most_visible = visible
    else:
        sizes = blocks.q.shape[-2], blocks.k.shape[-2], blocks.queries, blocks.keys
        visible, most_visible = blocks.mask.live_blocks(*sizes), blocks.mask.blocks(*sizes)
    counts = visible.sum(1).clip(1)
    order = (~visible).argsort(axis=1, stable=True)[:, : max(most_visible.sum(1).max(), 1)]
    return jnp.asarray(order, jnp.int32), jnp.asarray(counts, jnp.int32)


def _loop_scope(blocks: Blocks) -> AbstractContextManager[None]:
    """The scope of the loop over blocks of keys: how often it turns, by its pattern, for how many blocks of queries."""
    count, size = blocks.q.shape[0], blocks.q.shape[-2]
    return jax.named_scope(f"blocks[{blocks_in_sight(blocks.mask, size, blocks.queries, blocks.keys)}/{count} turns]")


def _split(x: Array, size: int) -> Array:
    """[B,T,...,H] -> [P,B,...,C,H]: blocks of at most `size` positions, with zeros where the last one is not full."""
    size = min(size, x.shape[1])
    x = jnp.pad(x, ((0, 0), (0, -x.shape[1] % size), *((0, 0),) * (x.ndim - 2)))
    return jnp.moveaxis(x.reshape(x.shape[0], -1, size, *x.shape[2:]), (1, 2), (0, -2))


def _join(blocks: Array, length: int) -> Array:
    """[P,B,...,C,H] -> [B,T,...,H], the inverse."""
    blocks = jnp.moveaxis(blocks, (0, -2), (1, 2))
    return blocks.reshape(blocks.shape[0], -1, *blocks.shape[3:])[:, :length]


def _scores(blocks: Blocks, q: Array, index_q: Array, index_k: Array) -> tuple[Array, Array, Callable]:
    """float32 scores [B,K,G,C,C] of one block of queries for one block of keys, the pairs that are allowed, and the
    pullback of the bias.

    The pullback turns gradients of biased scores into those of the plain scores and of the float arrays of the bias.
    Keys that pad the last block have no weight at all, not even for queries that may see nothing.
    """
    i, j, exists = _positions(blocks, index_q, index_k)
    scores = jnp.einsum("BKGTH,BKSH->BKGTS", q, blocks.k[index_k], preferred_element_type=jnp.float32)
    pullback: Callable = lambda dscores: (dscores, None)
    if blocks.bias is not None:
        floats, constants = _partition(blocks.bias)
        scores, pullback = jax.vjp(lambda s, floats: _combine(floats, constants).apply(s, i, j), scores, floats)
    allowed = exists = exists[:, None, None, None]
    if blocks.mask is not None:
        allowed = exists & blocks.mask(i, j)[:, None, None]
        scores = jnp.where(allowed, scores, MASK_VALUE)
    return jnp.where(exists, scores, -jnp.inf), allowed, pullback


def _positions(blocks: Blocks, index_q: Array, index_k: Array) -> tuple[Array, Array, Array]:
    """The positions of a block of queries, and of a block of keys, and whether these are no padding: all [1,C]."""
    i = index_q * blocks.q.shape[-2] + jnp.arange(blocks.q.shape[-2])
    j = index_k * blocks.k.shape[-2] + jnp.arange(blocks.k.shape[-2])
    return jnp.minimum(i, blocks.queries - 1)[None], jnp.minimum(j, blocks.keys - 1)[None], (j < blocks.keys)[None]


def _drop(blocks: Blocks, weights: Array, index_q: Array, index_k: Array) -> Array:
    """weights [B,K,G,C,C] of a block of queries and a block of keys, or their gradients, after dropout."""
    if blocks.dropout is None:
        return weights
    i, j, _ = _positions(blocks, index_q, index_k)
    return blocks.dropout.apply(weights, i, j)


def _partition(bias: ScoreBias | None) -> tuple[Any, Any]:
    """A bias with its float arrays alone, and with its other arrays alone; None stands for those that are absent."""
    floats = jax.tree.map(lambda leaf: leaf if jnp.issubdtype(leaf.dtype, jnp.floating) else None, bias)
    constants = jax.tree.map(lambda leaf: None if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf, bias)
    return floats, constants


def _combine(floats: Any, constants: Any) -> Any:
    """The inverse of `_partition`."""
    return jax.tree.map(lambda a, b: b if a is None else a, floats, constants, is_leaf=lambda leaf: leaf is None)


def _weighted_sum(weights: Array, v: Array) -> Array:
    """weights [B,K,G,T,S], v [B,K,S,H] -> float32 [B,K,G,T,H]."""
    return jnp.einsum("BKGTS,BKSH->BKGTH", weights.astype(v.dtype), v, preferred_element_type=jnp.float32)


def _sum_over_queries(weights: Array, q: Array) -> Array:
    """weights [B,K,G,T,S], q [B,K,G,T,H] -> float32 [B,K,S,H]."""
    return jnp.einsum("BKGTS,BKGTH->BKSH", weights.astype(q.dtype), q, preferred_element_type=jnp.float32)


def _add_block(sums: Array, index: Array, block: Array) -> Array:
    """The sums of all blocks, with `block` added to the one at `index`."""
    return jax.lax.dynamic_update_index_in_dim(sums, sums[index] + block, index, axis=0)
