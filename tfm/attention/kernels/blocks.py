"""Attention for a block of queries at a time, by einsum: scores of all queries never exist at once."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from tfm.attention.attend import apply_weights, biased_scores, masked_weights
from tfm.attention.bias import ScoreBias
from tfm.masks.mask import Mask
from tfm.ops import dropout
from tfm.sharding import replicate_length

# Elements of the scores of a block of queries with all keys, or of the sums that a score function computes, that one
# block holds.
BLOCK = 1 << 22


def attend_in_blocks(
    q: Array,
    k: Array,
    v: Array,
    mask: Mask | None = None,
    bias: ScoreBias | None = None,
    rate: float = 0.0,
    key: Array | None = None,
    score_fn: Callable[[Array, Array], Array] | None = None,
) -> Array:
    """q [B,T,K,G,H], k [B,S,K,H], v [B,S,K,h] -> [B,T,K,G,h] with the scores [B,K,G,T,S] of `score_fn`, by default
    scaled products; softmax in float32.

    Scores of a block of queries are computed at a time, and again in the backward pass. `rate` and `key` drop attention
    weights.
    """
    q, k, v = map(replicate_length, (q, k, v))
    length, keys = q.shape[1], jnp.arange(k.shape[1])[None]
    elements = q.size * k.shape[1] // (1 if score_fn else q.shape[-1])
    size = min(length, max(1, BLOCK * length // elements))
    if bias is not None and bias.for_queries(0, size) is None:
        size = length

    @jax.checkpoint
    def block(start: Array | int, index: Array | int) -> Array:
        rows, rows_bias = q, bias
        if size < length:
            rows = jax.lax.dynamic_slice_in_dim(q, start, size, axis=1)
            rows_bias = None if bias is None else bias.for_queries(start, size)
        positions = start + jnp.arange(size)[None]
        scores = biased_scores(rows, k, rows_bias, positions, keys, score_fn)
        weights = masked_weights(scores, mask, positions, keys)
        draw = None if key is None else jax.random.fold_in(key, index)
        return apply_weights(dropout(weights, rate, draw), v, rows_bias, positions, keys)

    count = -(-length // size)
    if count == 1:
        return block(0, 0)
    starts = jnp.minimum(jnp.arange(count) * size, length - size)  # the last block repeats some queries
    heads = jnp.moveaxis(jax.lax.map(lambda inputs: block(*inputs), (starts, jnp.arange(count))), 0, 1)
    first = heads[:, :-1].reshape(len(q), -1, *heads.shape[3:])
    return jnp.concatenate([first, heads[:, -1, count * size - length :]], axis=1)
