"""Losses beside that of a task: the next tokens of classified texts, and what a step minimizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from train import UserError
from train.losses.loss import objective
from train.losses.teaching import training_metrics
from train.tasks import resolve
from train.tasks.choice.loss import loss as choice_loss
from train.tasks.classify.loss import loss
from train.tasks.classify.task import CLASSIFY
from train.tasks.image.task import loss as image_loss

MODEL = tfm.override(
    tfm.Config(layers=1, width=16, heads=2, vocab=40, classes=3, dropout=0.0),
    {"residual": "pre", "input.token_types": None, "head.causal": True, "head.pool": "last"},
)
# Texts of 4 and 3 tokens in a row, and of 5 tokens beside padding.
SEGMENTS = np.int32([[1, 1, 1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 1, 0, 0, 0]])
TEXTS = [(0, 0, 4), (0, 4, 7), (1, 0, 5)]


def batch_of(rng):
    """Two rows for two texts each; the last place has no text."""
    positions = np.int32([[0, 1, 2, 3, 0, 1, 2, 0], [0, 1, 2, 3, 4, 0, 0, 0]])
    fields = {"tokens": np.int32(rng.integers(5, 40, (2, 8))), "segments": SEGMENTS, "positions": positions}
    fields |= {"types": np.zeros((2, 8), np.int32), "rows": np.int32([0, 1, 2, -1]), "labels": np.int32([0, 2, 1, 0])}
    return fields | {"weights": np.float32([1, 2, 0.5, 0]), "generative": np.full(4, 0.5, np.float32)}


def mean_losses(params, model, texts):
    """The mean loss of the tokens of each text but its first, by a language model with these weights."""
    language = tfm.CausalLM(params.encoder, params.table)
    losses = []
    for ids in texts:
        logits = np.asarray(tfm.causal_lm(language, model, jnp.asarray(ids)[None]), np.float64)[0, :-1]
        logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        losses.append(-logprobs[np.arange(len(ids) - 1), ids[1:]].mean())
    return np.array(losses)


@pytest.mark.slow
@pytest.mark.parametrize("shares_table", [pytest.param(True, marks=pytest.mark.slow), False])
def test_next_tokens_of_texts_that_share_rows(shares_table):
    model = tfm.override(MODEL, {"tie_embeddings": shares_table})
    params = random_params(tfm.classifier_specs(model, generative=True), std=0.3)
    batch = batch_of(np.random.default_rng(0))
    sums = jax.jit(loss, static_argnums=1)(params, model, batch, None)
    texts = [batch["tokens"][row, first:stop] for row, first, stop in TEXTS]
    expected = 0.5 * (mean_losses(params, model, texts) * batch["weights"][:3]).sum()
    np.testing.assert_allclose(sums["auxiliary_generative"], expected, rtol=1e-5)
    alone = {name: field for name, field in batch.items() if name != "generative"}
    without = jax.jit(loss, static_argnums=1)(params, model, alone, None)
    np.testing.assert_allclose(sums["loss"], without["loss"], rtol=1e-6)
    np.testing.assert_allclose(objective(sums), without["loss"] + expected, rtol=1e-5)
    assert objective(without) is without["loss"]


@pytest.mark.slow
def test_next_tokens_of_continuations():
    """A row of two continuations, and of one that is there."""
    params, batch = random_params(tfm.classifier_specs(MODEL), std=0.3), batch_of(np.random.default_rng(1))
    fields = batch | {name: batch[name][:2] for name in ("generative", "rows", "labels")}
    fields |= {"weights": np.float32([1, 2]), "present": np.int32([[1, 1], [1, 0]]), "labels": np.int32([1, 0])}
    sums = choice_loss(params, MODEL, fields, None)
    means = mean_losses(params, MODEL, [batch["tokens"][row, first:stop] for row, first, stop in TEXTS])
    np.testing.assert_allclose(sums["auxiliary_generative"], 0.5 * (means[:2].mean() + 2 * means[2]), rtol=1e-5)


@pytest.mark.slow
def test_next_pixels():
    rng = np.random.default_rng(2)
    params = random_params(tfm.classifier_specs(MODEL), std=0.3)
    batch = {"tokens": np.int32(rng.integers(0, 40, (2, 8))), "labels": np.int32([0, 1]), "withheld": np.zeros(2)}
    batch |= {"weights": np.float32([1, 0]), "generative": np.ones(2, np.float32)}
    sums = image_loss(params, MODEL, jax.tree.map(jnp.asarray, batch), None)
    np.testing.assert_allclose(
        sums["auxiliary_generative"], mean_losses(params, MODEL, batch["tokens"][:1]).sum(), rtol=1e-5
    )


def test_metrics_of_training_say_what_is_minimized():
    sums = {"loss": 6.0, "weight": 3.0, "right": 2.0, "padding": 0.0, "auxiliary_generative": 3.0}
    metrics = training_metrics(CLASSIFY.metrics, sums)
    assert {name: metrics[name] for name in metrics if name.startswith("loss")} == {
        "loss": 3.0,
        "loss_task": 2.0,
        "loss_generative": 1.0,
    }


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--task=classify", "needs a model that reads from left to right; add --model.head.causal=true"),
        ("--task=image", "predicts tokens, and model.input=patches has none; leave it out"),
        ("--task=choice --model.head.causal=true --model.head.features=mix", "reads the last layer by a table of its"),
    ],
)
def test_models_that_cannot_predict_what_comes_next(flags, sentence):
    with pytest.raises(UserError, match=sentence):
        resolve.resolve([*flags.split(), "--task.generative=0.5"], None, None)
