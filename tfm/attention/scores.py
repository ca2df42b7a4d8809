"""Score functions of attention beside scaled products: products, bilinear and additive ones.

Products and bilinear scores are scaled products of other queries, so that every kernel computes them. Additive scores
are not: they are computed for a block of queries at a time.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import reshard

from tfm.attention.attend import apply_weights, biased_scores, masked_weights
from tfm.attention.bias import ScoreBias
from tfm.config.model import Config
from tfm.masks.mask import Mask
from tfm.ops import dropout, einsum
from tfm.params import weight_spec
from tfm.scopes import SUMS
from tfm.sharding import replicate_length, unshard_fsdp

# Elements of the sums of a block of queries with all keys that one block holds.
BLOCK = 1 << 22


def score_specs(config: Config, score: str) -> Any:
    """What a score function trains: W [K,G,H,h] of multiplicative scores, v [K,G,H] of additive ones, or None.

    W starts as the unit matrix divided by the root of H: the scores are scaled products at first.
    """
    if score == "additive":
        return weight_spec(config, "KGH", inputs=3)
    if score != "multiplicative":
        return None
    size = config.sizes["H"]

    def init(key, shape, sharding):
        matrix = jnp.broadcast_to(size**-0.5 * jnp.eye(size), shape)
        return matrix if sharding is None else reshard(matrix, sharding)

    return replace(weight_spec(config, "KGHh", inputs=3, h=size), init=init)


def score_queries(score: str, matrix: Any, q: Array) -> Array:
    """q [B,T,K,G,H] -> queries whose scaled products with keys are the scores (Luong et al. 2015, eq. 8: dot, general);
    those of additive scores as they are."""
    if score == "multiplicative":
        q = einsum("BTKGH,KGHh->BTKGh", q, matrix)
    return q * q.shape[-1] ** 0.5 if score in ("dot", "multiplicative") else q


def score_function(score: str, vector: Any) -> Callable[[Array, Array], Array] | None:
    """(queries, keys) -> scores; None where they are scaled products of `score_queries`."""
    return partial(additive_scores, vector=vector) if score == "additive" else None


def additive_scores(q: Array, k: Array, vector: Array) -> Array:
    """q [B,T,K,G,H], k [B,S,K,H], vector [K,G,H] -> float32 scores [B,K,G,T,S]: vector tanh(q + k).

    Bahdanau et al. 2015, appendix A.1.2.
    """
    q = jnp.moveaxis(replicate_length(q), 1, 3)[:, :, :, :, None]
    k = jnp.moveaxis(replicate_length(k), 1, 2)[:, :, None, None]
    vector = unshard_fsdp(vector).astype(q.dtype)[None, :, :, None, None]
    features = jnp.tanh(q + k)
    with jax.named_scope(SUMS):
        return (features * vector).sum(-1, dtype=jnp.float32)


def attend_in_blocks(
    score_fn: Callable[[Array, Array], Array] | None,
    operands: tuple[Array, Array, Array],
    mask: Mask | None,
    bias: ScoreBias | None,
    rate: float = 0.0,
    key: Array | None = None,
) -> Array:
    """q [B,T,K,G,H], k and v [B,S,K,H] -> [B,T,K,G,H] with the scores [B,K,G,T,S] of `score_fn`, by default scaled
    products; softmax in float32.

    Scores of a block of queries are computed at a time, and again in the backward pass. `rate` and `key` drop attention
    weights.
    """
    q, k, v = map(replicate_length, operands)
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
