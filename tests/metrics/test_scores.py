"""Metrics of classifications against their definitions."""

import itertools

import numpy as np
import pytest
from scipy import stats

from train.metrics import scores

RNG = np.random.default_rng(0)


def logits_of(labels, classes):
    return np.eye(classes)[labels] * 3


def covariance(a, b):
    """The sum over the columns of matrices [N,C]."""
    return ((a - a.mean(0)) * (b - b.mean(0))).sum()


def f1(pairs, c):
    """2 / (1 / precision + 1 / recall)."""
    right = sum(guess == truth == c for guess, truth in pairs)
    guessed = sum(guess == c for guess, truth in pairs)
    labelled = sum(truth == c for guess, truth in pairs)
    return 2 / (guessed / right + labelled / right) if right else 0.0


@pytest.mark.parametrize("classes", [2, 5])
def test_one_class_each(classes):
    guesses, labels = RNG.integers(0, classes, (2, 200))
    labels[:60] = guesses[:60]
    values = scores.classification_metrics(logits_of(guesses, classes), labels)
    pairs = list(zip(guesses, labels, strict=True))
    assert values["accuracy"] == np.mean([guess == label for guess, label in pairs])
    assert values["f1_macro"] == pytest.approx(np.mean([f1(pairs, c) for c in range(classes)]))
    assert ("f1" in values) == (classes == 2)
    if classes == 2:
        assert values["f1"] == pytest.approx(f1(pairs, 1))
        assert values["matthews"] == pytest.approx(np.corrcoef(guesses, labels)[0, 1]), (
            "Pearson's correlation of two binary variables"
        )
    # For any number of classes: the correlation of the indicator matrices, their covariances summed over classes.
    guessed, labelled = np.eye(classes)[guesses], np.eye(classes)[labels]
    assert values["matthews"] == pytest.approx(
        covariance(guessed, labelled) / (covariance(guessed, guessed) * covariance(labelled, labelled)) ** 0.5
    )


def test_one_class_each_at_its_ends():
    labels = np.array([0, 1, 2, 1])
    assert scores.classification_metrics(logits_of(labels, 3), labels) == {
        "accuracy": 1.0,
        "f1_macro": 1.0,
        "matthews": pytest.approx(1.0),
    }
    always = scores.classification_metrics(logits_of(np.ones(4, int), 3), labels)
    assert (always["accuracy"], always["matthews"]) == (0.5, 0.0)


def test_confusion():
    guesses, labels = np.array([0, 0, 1, 2, 2]), np.array([0, 1, 1, 2, 0])
    table = scores.confusion(guesses, labels, 4)
    for row, column in itertools.product(range(4), repeat=2):
        assert table[row, column] == sum((labels == row) & (guesses == column))


def test_several_classes():
    labels = RNG.integers(0, 2, (100, 3)).astype(np.float32)
    logits = RNG.normal(size=(100, 3)) + labels
    values = scores.classification_metrics(logits, labels)
    assert values["accuracy"] == np.mean(
        [all((logit > 0) == label) for logit, label in zip(logits, labels > 0, strict=True)]
    )
    decisions = list(zip((logits > 0).ravel(), (labels > 0).ravel(), strict=True))
    assert values["f1"] == pytest.approx(f1(decisions, True))
    columns = [list(zip(logits[:, c] > 0, labels[:, c] > 0, strict=True)) for c in range(3)]
    assert values["f1_macro"] == pytest.approx(np.mean([f1(pairs, True) for pairs in columns]))


def test_values():
    labels = RNG.normal(size=50).astype(np.float32)
    logits = (np.exp(labels) + 0.1 * RNG.normal(size=50))[:, None]
    values = scores.classification_metrics(logits, labels)
    assert values["pearson"] == pytest.approx(np.corrcoef(logits[:, 0], labels)[0, 1], rel=1e-5)
    ranks = [stats.rankdata(values) for values in (logits[:, 0], labels)]
    assert values["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1], rel=1e-5)
    assert scores.classification_metrics(np.ones((5, 1)), labels[:5]) == {"pearson": 0.0, "spearman": 0.0}, (
        "a constant has no correlation"
    )
