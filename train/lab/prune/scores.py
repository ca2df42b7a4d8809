"""Scores of heads: the derivative of the loss, or gates that are trained to close."""

from collections.abc import Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

import tfm
from tfm.catalogue.studies.pruning import hard_concrete, head_gates, open_probability, with_gates
from tfm.params import PyTree
from train.losses.loss import Loss

# Fields of a batch: arrays [B,...].
Batch = Mapping[str, Array]

# Gates of heads, or their logits, [...,K,G] by the name of an attention.
Gates = dict[str, Array]

# Where gates start, as logits, and how fast they learn.
LOG_ALPHA, RATE = 2.0, 0.1


def by_gradient(loss: Loss, model: tfm.Config, params: PyTree, batches: Iterable[Batch]) -> dict[str, np.ndarray]:
    """Scores [...,K,G] by the name of an attention: the mean over texts of |dL/dg|, g the gate of a head, L the loss of
    a text per predicted token.

    Those of a layer are divided by their norm. Source: Michel et al. 2019, eq. 2 and section 4.1.
    """

    def text_loss(gates: Gates, params: PyTree, text: Batch) -> Array:
        fields = {name: field[None] for name, field in text.items()}
        return _mean_loss(loss(with_gates(params, gates), model, fields, None))

    @jax.jit
    def summed(params: PyTree, batch: Batch):
        gates = head_gates(params)

        def add(total, text):
            gradient = jax.grad(text_loss)(gates, params, text)
            return jax.tree.map(lambda score, slope: score + jnp.abs(slope), total, gradient), None

        return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, gates), batch)[0]

    totals: dict[str, np.ndarray] = {}
    texts = 0
    for batch in batches:
        texts += len(next(iter(batch.values())))
        for name, score in summed(params, batch).items():
            totals[name] = totals.get(name, np.float64(0)) + np.asarray(score, np.float64)
    return {name: _normalized(score / texts) for name, score in totals.items()}


def by_learned_gates(
    loss: Loss, model: tfm.Config, params: PyTree, batches: Iterable[Batch], penalty: float, seed: int
) -> dict[str, np.ndarray]:
    """Scores [...,K,G] by the name of an attention: the logits of gates that a step for each batch has trained.

    Their loss is that of the model, per predicted token, plus `penalty` times the expected number of open gates (Voita
    et al. 2019, eq. 7 to 9). The model itself stays as it is; the paper trains it too.
    """
    optimizer = optax.adam(RATE)

    def total_loss(logits: Gates, params: PyTree, batch: Batch, key: Array) -> Array:
        keys = dict(zip(logits, jax.random.split(key, len(logits)), strict=True))
        gates = {name: hard_concrete(leaf, keys[name]) for name, leaf in logits.items()}
        open_gates = sum(open_probability(leaf).sum() for leaf in logits.values())
        return _mean_loss(loss(with_gates(params, gates), model, batch, None)) + penalty * open_gates

    @jax.jit
    def train_step(logits, state, params, batch, key):
        updates, state = optimizer.update(jax.grad(total_loss)(logits, params, batch, key), state)
        return optax.apply_updates(logits, updates), state

    logits = jax.tree.map(lambda gate: LOG_ALPHA * gate, head_gates(params))
    state = optimizer.init(logits)
    for n, batch in enumerate(batches):
        logits, state = train_step(logits, state, params, batch, jax.random.fold_in(jax.random.key(seed), n))
    return {name: np.asarray(leaf) for name, leaf in logits.items()}


def _mean_loss(sums: Mapping[str, Array]) -> Array:
    """The loss per predicted token, or per text."""
    return sums["loss"] / jnp.maximum(sums["weight"], 1e-6)


def _normalized(scores: np.ndarray) -> np.ndarray:
    """Scores [...,K,G], those of each layer divided by their norm."""
    return scores / np.maximum(np.sqrt(np.square(scores).sum((-2, -1), keepdims=True)), 1e-30)
