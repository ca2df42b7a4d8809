"""Scores of pairs by a classifier of the scores 1 to 5, as SentEval trains it (Tai et al. 2015, section 4.2).

It predicts a distribution p over five scores, and the score is its mean. The target of a score y lies on the two whole
scores around it. The loss is the mean squared error over scores and pairs; of Adam, rounds of 50 epochs.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from train.lab.sentences import intervals
from train.lab.sentences.randomness import best_round, linear_starts

# Rows of a batch, epochs of a round, the last epoch after which a round begins, and rounds that may fail, minus one.
_BATCH, _EPOCHS, _LAST_EPOCH, _TENACITY = 64, 50, 1000, 3
_SCORES, _RATE = 5, 1e-3


class ScoredPairs(NamedTuple):
    """Features float32 [N,D] of pairs, and their scores [N]."""

    features: np.ndarray
    scores: np.ndarray


def fit(parts: Mapping[str, ScoredPairs], seed: int) -> tuple[np.ndarray, float]:
    """Trains on `train`, stops by Pearson's correlation on `dev` -> scores of `test` [N], and the best correlation."""
    train, dev, test = (parts[name] for name in ("train", "dev", "test"))
    (start,) = linear_starts(seed, (train.features.shape[1], _SCORES))
    params = tuple(map(jnp.asarray, start))
    state = _OPTIMIZER.init(params)
    x, y = jnp.asarray(train.features), jnp.asarray(targets(train.scores))
    orders = np.random.RandomState(seed)

    def rounds(params, state):
        for _ in range(0, _LAST_EPOCH + 1, _EPOCHS):
            rows = np.stack([_batches(orders.permutation(len(x))) for _ in range(_EPOCHS)])
            params, state = _round(params, state, x, y, rows.reshape(-1, _BATCH))
            scores = np.asarray(_predict(params, dev.features))
            yield params, intervals.correlation(scores, dev.scores, "pearson").value / 100

    best_params, best = best_round(params, rounds(params, state), _TENACITY)
    return np.asarray(_predict(best_params, test.features), np.float64), best


def targets(scores: np.ndarray) -> np.ndarray:
    """Scores [N] -> float32 [N,5]: a score between two whole ones lies on both; below 1, what SentEval makes of it."""
    low = np.floor(scores)
    levels = np.arange(1, _SCORES + 1)
    upper = np.where(levels == low[:, None] + 1, (scores - low)[:, None], 0)
    return np.where(levels == low[:, None], (low - scores + 1)[:, None], upper).astype(np.float32)


_OPTIMIZER = optax.scale_by_adam(eps=1e-8)


def _batches(order: np.ndarray) -> np.ndarray:
    """An order of rows as batches int32 [S,B]; -1 where the last one has no row."""
    padded = np.full(-(-len(order) // _BATCH) * _BATCH, -1, np.int32)
    padded[: len(order)] = order
    return padded.reshape(-1, _BATCH)


@partial(jax.jit, donate_argnums=1)
def _round(params, state, x: Array, y: Array, rows: Array):
    """Steps on batches of rows [S,B]."""

    def loss(params, members: Array) -> Array:
        is_row = (members >= 0).astype(jnp.float32)
        errors = jnp.square(_distribution(params, x[members]) - y[members]).mean(1)
        return (errors * is_row).sum() / is_row.sum()

    def step(carry, members):
        params, state = carry
        updates, state = _OPTIMIZER.update(jax.grad(loss)(params, members), state)
        return (jax.tree.map(lambda leaf, update: leaf - _RATE * update, params, updates), state), None

    return jax.lax.scan(step, (params, state), rows)[0]


def _distribution(params, x: Array) -> Array:
    kernel, bias = params
    return jax.nn.softmax(x @ kernel + bias[None])


@jax.jit
def _predict(params, x: Array) -> Array:
    return _distribution(params, x) @ jnp.arange(1, _SCORES + 1, dtype=jnp.float32)
