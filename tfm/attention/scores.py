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

from tfm.attention.attend import Heads
from tfm.attention.kernels.blocks import attend_in_blocks
from tfm.attention.kernels.choice import Choice, attention_scope
from tfm.config.model import Config
from tfm.ops import einsum
from tfm.params import weight_spec
from tfm.scopes import SUMS
from tfm.sharding import replicate_length, unshard_fsdp


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


def attend_scores(
    heads: Heads,
    score: str,
    score_fn: Callable[[Array, Array], Array],
    rate: float = 0.0,
    key: Array | None = None,
) -> Array:
    """`attention` with scores of `score_fn`, which no kernel computes; `score` is their name."""
    with attention_scope(Choice("blocks", f"{score} scores"), heads):
        return attend_in_blocks(*heads, rate, key, score_fn)
