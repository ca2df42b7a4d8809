"""Calibration against loops, a grid of temperatures, and probabilities that are right by construction."""

import math

import numpy as np
import pytest

from train.metrics.calibration import calibration_metrics, fit_temperature, reliability, scaled_reliability
from train.screens.plots import reliability as plot


def outcomes(rows, scale, seed=0, classes=3):
    """Logits whose softmax is the probability of the classes that are drawn, times a scale that spoils it."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * 1.5
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = np.array([rng.choice(classes, p=row) for row in probabilities])
    return np.float32(logits * scale), labels


def by_hand(logits, labels, temperature=1.0):
    """The expected calibration error, row by row (Guo et al. 2017, eq. 3)."""
    bins = {}
    for row, label in zip(logits.tolist(), labels, strict=True):
        exponentials = [math.exp(value / temperature) for value in row]
        confidence = max(exponentials) / sum(exponentials)
        right = row.index(max(row)) == label
        place = next(m for m in range(1, 16) if confidence <= m / 15)
        bins.setdefault(place, []).append((confidence, right))
    distances = [abs(sum(c for c, _ in rows) - sum(right for _, right in rows)) for rows in bins.values()]
    return sum(distances) / len(labels)


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_expected_calibration_error(scale):
    logits, labels = outcomes(500, scale)
    assert reliability(logits, labels).error == pytest.approx(by_hand(logits, labels), abs=1e-9)
    assert reliability(logits, labels, 2.0).error == pytest.approx(by_hand(logits, labels, 2.0), abs=1e-9)
    bins = reliability(logits, labels)
    assert bins.counts.sum() == 500
    filled = bins.counts > 0
    edges = np.arange(15) / 15
    assert (bins.confidence[filled] > edges[filled]).all()
    assert (bins.confidence[filled] <= edges[filled] + 1 / 15 + 1e-12).all()


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_temperature_has_the_lowest_loss_of_a_grid(scale):
    logits, labels = outcomes(2000, scale)

    def loss(temperature):
        scaled = logits.astype(np.float64) / temperature
        return -(scaled[np.arange(2000), labels] - np.log(np.exp(scaled).sum(1))).mean()

    fitted = fit_temperature(logits, labels)
    assert loss(fitted) <= min(map(loss, np.geomspace(0.05, 20, 400))) + 1e-9
    assert fitted == pytest.approx(scale, rel=0.1), "the scale that spoiled them"


def test_no_row_is_measured_at_a_temperature_that_was_fitted_to_it():
    logits, labels = outcomes(1000, 4.0)
    halves = [(logits[n::2], labels[n::2]) for n in (0, 1)]
    temperatures = [fit_temperature(*half) for half in halves]
    rows = [reliability(*halves[0], temperatures[1]), reliability(*halves[1], temperatures[0])]
    counts = rows[0].counts + rows[1].counts
    np.testing.assert_allclose(scaled_reliability(logits, labels).counts, counts)
    metrics = calibration_metrics(logits, labels)
    assert metrics["ece_scaled"] == scaled_reliability(logits, labels).error < 0.06 < metrics["ece"]
    assert metrics["temperature"] == pytest.approx(4.0, rel=0.1)


def test_few_and_certain_rows():
    assert calibration_metrics(np.float32([[9, 0], [0, 9]]), np.array([0, 1])).keys() == {"ece"}
    certain = np.float32([[1e9, -1e9], [-1e9, 1e9]] * 4)
    metrics = calibration_metrics(certain, np.array([0, 1] * 4))
    assert (metrics["ece"], metrics["ece_scaled"]) == (0.0, 0.0)
    assert all(map(math.isfinite, metrics.values()))


def test_plot(tmp_path):
    logits, labels = outcomes(100, 2.0)
    plot(reliability(logits, labels), scaled_reliability(logits, labels), tmp_path)
    assert (tmp_path / "plots" / "reliability.png").stat().st_size > 1000
