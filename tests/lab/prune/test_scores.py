"""Scores of heads: by gradient against finite differences; learned gates on a loss that needs one head."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.residuals import start

import tfm
from tfm.catalogue.studies.pruning import head_gates, with_gates
from train.lab.prune.scores import by_gradient, by_learned_gates

pytestmark = pytest.mark.slow

CONFIG = tfm.Config(layers=2, heads=4, width=16, vocab=30, pad_vocab_to=1, length=8, dropout=0.0, init_std=0.3)


def lm_loss(params, model, batch, key):
    """Mean of the states that weights choose, for each text."""
    states = tfm.encoder(params, model, batch["tokens"])
    losses = (states * batch["chosen"][:, None]).sum((1, 2))
    return {"loss": losses.sum(), "weight": jnp.float32(2 * len(losses))}


def test_by_gradient_is_the_mean_slope_of_every_gate():
    """Slopes of single texts have signs, which cancel in the slope of a batch."""
    params = start(tfm.encoder_specs(CONFIG))
    rng = np.random.default_rng(0)
    batch = {
        "tokens": jax.device_put(np.int32(rng.integers(0, 30, (3, 6)))),
        "chosen": jax.device_put(np.float32(rng.normal(size=(3, 16)))),
    }
    scores = by_gradient(lm_loss, CONFIG, params, [batch, batch])
    assert list(scores) == ["layers.period.0.mixer"]
    loss = jax.jit(lambda gates, text: lm_loss(with_gates(params, gates), CONFIG, text, None)["loss"] / 2)
    (name,), (gates,) = zip(*head_gates(params).items(), strict=True)
    slopes = np.zeros((3, 2, 4, 1))
    for row, layer, head in np.ndindex(3, 2, 4):
        text = {key: field[row : row + 1] for key, field in batch.items()}
        ahead, behind = (loss({name: gates.at[layer, head, 0].add(step)}, text) for step in (1e-2, -1e-2))
        slopes[row, layer, head] = (ahead - behind) / 2e-2
    expected = np.abs(slopes).mean(0)
    expected /= np.sqrt(np.square(expected).sum((1, 2), keepdims=True))
    np.testing.assert_allclose(scores[name], expected, rtol=0.02, atol=2e-3)


def test_learned_gates_close_where_the_loss_does_not_mind():
    params = start(tfm.encoder_specs(CONFIG))
    needed = params.layers.period[0].mixer.output.kernel[1, 2]

    def loss(params, model, batch, key):
        kernel = params.layers.period[0].mixer.output.kernel[1, 2]
        return {"loss": 40 * jnp.square(kernel - needed).sum() + 0 * batch["x"].sum(), "weight": jnp.float32(1)}

    batches = [{"x": jnp.zeros(1)}] * 100
    logits = by_learned_gates(loss, CONFIG, params, batches, penalty=0.1, seed=0)["layers.period.0.mixer"]
    assert np.argmax(logits) == 1 * 4 + 2
    assert logits[1, 2] > 1
    assert np.delete(logits.ravel(), 6).max() < -1
