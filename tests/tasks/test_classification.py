"""Losses of classes against loops: smoothing, the focal loss, weights of classes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from train.data.labels import LossFields
from train.tasks.classification import class_losses

LOGITS = np.float32(np.random.default_rng(0).normal(size=(5, 4)) * 2)
CLASSES = np.int32([0, 3, 1, 1, 2])
DECISIONS = np.float32(np.random.default_rng(1).integers(0, 2, (5, 4)))
OPTIONS = [(0.0, 0.0), (0.2, 0.0), (0.0, 2.0), (0.0, 0.5), (0.2, 1.0)]


def batch(labels, smoothing, focal):
    fields = LossFields(smoothing=smoothing, focal=focal).fields(labels, np.ones(5, bool))
    return {"labels": jnp.asarray(labels)} | fields


@pytest.mark.parametrize(("smoothing", "focal"), OPTIONS)
def test_classes(smoothing, focal):
    """Szegedy et al. 2016, section 7; Lin et al. 2017, eq. 4."""
    expected = []
    for row, label in zip(LOGITS.astype(np.float64), CLASSES, strict=True):
        p = np.exp(row) / np.exp(row).sum()
        target = np.full(4, smoothing / 4)
        target[label] += 1 - smoothing
        expected.append(-(target * np.log(p)).sum() * (1 - p[label]) ** focal)
    np.testing.assert_allclose(class_losses(LOGITS, batch(CLASSES, smoothing, focal)), expected, rtol=1e-4)


@pytest.mark.parametrize(("smoothing", "focal"), OPTIONS)
def test_decisions(smoothing, focal):
    """Every class is a decision of its own: its target is between 0 and 1, and its focus that of the right answer."""
    yes = 1 / (1 + np.exp(-LOGITS.astype(np.float64)))
    losses = np.zeros((5, 4))
    for b, c in np.ndindex(5, 4):
        target = DECISIONS[b, c] * (1 - smoothing) + smoothing / 2
        right = yes[b, c] if DECISIONS[b, c] else 1 - yes[b, c]
        losses[b, c] = -(target * np.log(yes[b, c]) + (1 - target) * np.log(1 - yes[b, c])) * (1 - right) ** focal
    np.testing.assert_allclose(class_losses(LOGITS, batch(DECISIONS, smoothing, focal)), losses.mean(1), rtol=1e-4)


@pytest.mark.parametrize("focal", [pytest.param(0.5, marks=pytest.mark.slow), 2.0])
@pytest.mark.parametrize("labels", [CLASSES, DECISIONS], ids=["classes", "decisions"])
def test_gradients_of_rows_that_are_certain(labels, focal):
    logits = jnp.asarray(np.where(DECISIONS > 0, 200.0, -200.0), jnp.float32)
    gradient = jax.grad(lambda logits: class_losses(logits, batch(labels, 0.0, focal)).sum())(logits)
    assert np.isfinite(gradient).all()


def test_absent_classes_have_no_part_in_the_smoothing():
    logits = jnp.asarray(LOGITS).at[:, 3].set(-1e9)
    labels, present = np.int32([0, 2, 1, 1, 2]), np.arange(4) < np.full((5, 1), 3)
    losses = class_losses(logits, batch(labels, 0.3, 0.0), jnp.asarray(present))
    expected = class_losses(LOGITS[:, :3], batch(labels, 0.3, 0.0))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
