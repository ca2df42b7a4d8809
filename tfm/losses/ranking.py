"""Losses of scores: in the order that grades ask for, or as a teacher has them. All are float32."""

import jax
import jax.numpy as jnp
from jax import Array

# The score of what is not there: it has no part in a softmax, and all sums stay finite.
_ABSENT = -1e9


def cosent_loss(cosines: Array, grades: Array, present: Array, temperature: Array | float) -> Array:
    """cosines, grades float32 and present bool [N], of pairs of texts -> a scalar in nats (Su 2022, CoSENT).

    log(1 + sum of exp((s_j - s_i) / temperature)) over all i and j of which i has the better grade. Memory holds
    [N,N].
    """
    scores = cosines / temperature
    differences = jnp.where(_is_better(grades, present), scores[None] - scores[:, None], _ABSENT)
    return jax.nn.logsumexp(jnp.append(differences, jnp.zeros(1)))


def margin_losses(scores: Array, teacher: Array, present: Array) -> Array:
    """scores, teacher float32 and present bool [...,1+K] of passages, the right one first -> squared errors [...]
    (Hofstätter et al. 2020, eq. 3).

    The score of the right passage is to exceed that of a wrong one by as much as the teacher's does; the mean over
    wrong ones that are present.
    """
    margins, targets = scores[..., :1] - scores[..., 1:], teacher[..., :1] - teacher[..., 1:]
    kept = present[..., 1:].astype(jnp.float32)
    return (jnp.square(margins - targets) * kept).sum(-1) / jnp.maximum(kept.sum(-1), 1)


def list_losses(scores: Array, targets: Array, present: Array) -> Array:
    """scores, targets float32 and present bool [...,C] of passages -> losses [...] in nats, the cross-entropy of the
    softmax of scores and that of targets: grades, or the scores of a teacher (Cao et al. 2007, ListNet)."""
    shares = jax.nn.softmax(jnp.where(present, targets, _ABSENT), axis=-1)
    logprobs = jax.nn.log_softmax(jnp.where(present, scores, _ABSENT), axis=-1)
    return -jnp.where(present, shares * logprobs, 0).sum(-1)


def divergences(scores: Array, teacher: Array, present: Array, temperature: Array | float) -> Array:
    """scores, teacher float32 and present bool [...,C] of passages -> losses [...] in nats, the divergence of
    softmax(scores / temperature) from softmax(teacher), times the temperature squared (Hinton et al. 2015).

    temperature is a number, or [...]
    """
    entropies = list_losses(teacher, teacher, present)
    temperatures = jnp.zeros_like(entropies) + temperature
    scaled = scores / temperatures[..., None]
    return (list_losses(scaled, teacher, present) - entropies) * jnp.square(temperatures)


def lambda_losses(scores: Array, grades: Array, present: Array, mu: float = 10.0) -> Array:
    """scores, grades float32, present bool [B,C] of passages of a list -> losses [B] (Wang et al. 2018, NDCG-Loss2++).

    The mean over pairs of which one has the better grade of -log2 sigmoid of the difference of their scores, weighed by
    how much nDCG changes with their ranks: those of the scores now, and `mu` times a bound on it. A list without such a
    pair has none.
    """
    order = jnp.argsort(-jnp.where(present, jax.lax.stop_gradient(scores), _ABSENT), axis=-1)
    ranked, kept = jnp.take_along_axis(scores, order, 1), jnp.take_along_axis(present, order, 1)
    by_rank = jnp.where(kept, jnp.take_along_axis(grades, order, 1), 0)
    ranks = jnp.arange(scores.shape[1])
    discounts = (1 / jnp.log2(ranks.astype(jnp.float32) + 2))[None]
    best = -jnp.sort(-jnp.where(present, grades, 0), axis=-1)
    ideal = jnp.maximum(((2.0**best - 1) * discounts).sum(-1), 1e-10)
    gains = (2.0**by_rank - 1) / ideal[:, None]
    distances = jnp.abs(ranks[:, None] - ranks[None])
    bounds = jnp.where(distances > 0, jnp.abs(discounts[0, distances - 1] - discounts[0, distances]), 0)[None]
    weights = (mu * bounds + jnp.abs(_differences(discounts))) * jnp.abs(_differences(gains))
    counts = _is_better(by_rank, kept)
    losses = -weights * jax.nn.log_sigmoid(_differences(ranked)) / jnp.log(2.0)
    total = jnp.where(counts, losses, 0).sum((1, 2))
    return total / jnp.maximum(counts.sum((1, 2), dtype=jnp.int32), 1).astype(jnp.float32)


def _differences(x: Array) -> Array:
    """x [...,C] -> [...,C,C], of each and each."""
    return x[..., :, None] - x[..., None, :]


def _is_better(grades: Array, present: Array) -> Array:
    """grades, present [...,C] -> bool [...,C,C]: both are present, and the first one has the better grade."""
    return (_differences(grades) > 0) & present[..., :, None] & present[..., None, :]
