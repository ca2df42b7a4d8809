"""Contrastive learning: vectors of texts and images, near where they belong together and far where they do not.

Vectors are float32 of length 1. They come in parts [P,B,D], as a batch does that is encoded part by part; the rows of
all parts meet one another. On a mesh every device compares its rows with those of all.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from tfm.sharding import replicate

# The logit of a candidate that is not there: it has no part in a sum, and all sums stay finite.
ABSENT = -1e9

# The most that logits are multiplied by in CLIP.
MAX_SCALE = 100.0


def in_batch_losses(
    queries: Array, candidates: Array, present: Array, temperature: Array | float
) -> tuple[Array, Array]:
    """queries [P,B,D], candidates [P,B,N,D] -> losses [P,B] in nats, and whether the right one is the nearest, bool.

    Of row b the right candidate is its first; its others, and those of all other rows, are the wrong ones (van den Oord
    et al. 2018, eq. 4; Gao et al. 2021, eq. 1 and 5). present [P,B,N] leaves candidates out; temperature is a number,
    or [P,B].
    """
    return _against_all(queries, candidates, present, 1 / temperature, 0.0, _log_sum)


def symmetric_losses(first: Array, second: Array, present: Array, log_scale: Array) -> tuple[Array, Array]:
    """first and second [P,B,D] -> losses [P,B] in nats, the mean of both directions (Radford et al. 2021, figure 3),
    and whether the right second vector is the nearest to a first one, bool.

    present [P,B] leaves rows out; cosines are multiplied by exp(log_scale), at most `MAX_SCALE`, a scalar.
    """
    scale = jnp.minimum(jnp.exp(log_scale), MAX_SCALE)
    kept = present[:, :, None]
    losses, is_right = _against_all(first, second[:, :, None], kept, scale, 0.0, _log_sum)
    losses_back, _ = _against_all(second, first[:, :, None], kept, scale, 0.0, _log_sum)
    return (losses + losses_back) / 2, is_right


def sigmoid_losses(first: Array, second: Array, present: Array, log_scale: Array, bias: Array) -> tuple[Array, Array]:
    """first and second [P,B,D], present [P,B] -> float32 losses [P,B], and whether the right one is the most similar.

    There is a decision for every pair, whether it belongs together (Zhai et al. 2023, algorithm 1).
    Logits are cosines times exp(log_scale), plus the bias, both scalars. The loss of a row is the sum over its pairs.
    """
    return _against_all(first, second[:, :, None], present[:, :, None], jnp.exp(log_scale), bias, _sum_of_softplus)


def _against_all(
    queries: Array,
    candidates: Array,
    present: Array,
    scale: Array | float,
    bias: Array | float,
    total: Callable[[Array], Array],
) -> tuple[Array, Array]:
    """The total over the logits [B,M] of all candidates, less the logit of the right one: losses [P,B], and whether it
    is the largest. Memory holds the logits of one part."""
    wrong = replicate(candidates).reshape(-1, candidates.shape[-1])
    kept = replicate(present).reshape(1, -1)
    scales = jnp.zeros_like(queries[:, :, 0]) + scale

    @jax.checkpoint
    def of_part(part: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        part_queries, right, part_scales = part
        cosines = jnp.einsum("BD,MD->BM", part_queries, wrong, precision="highest")
        logits = jnp.where(kept, cosines * part_scales[:, None] + bias, ABSENT)
        right_logits = (part_queries * right).sum(-1) * part_scales + bias
        largest = logits.max(-1)
        return total(logits) - right_logits, right_logits >= largest - 1e-5 * jnp.abs(largest)

    return jax.lax.map(of_part, (queries, candidates[:, :, 0], scales))


def _log_sum(logits: Array) -> Array:
    """What the cross-entropy of a softmax adds to the right logit, with its sign changed."""
    return jax.nn.logsumexp(logits, axis=-1)


def _sum_of_softplus(logits: Array) -> Array:
    """The term of `_log_sum` for independent decisions: log(1 + e^x) - log(1 + e^-x) is x, for the positive pair."""
    return jax.nn.softplus(logits).sum(-1)
