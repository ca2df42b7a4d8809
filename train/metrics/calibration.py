"""Calibration: whether a probability of 0.8 is right four times of five (Guo et al. 2017)."""

from typing import NamedTuple

import numpy as np

BINS = 15


class Reliability(NamedTuple):
    """By bin of confidence, float64 [BINS]: how many rows, their mean confidence, and the share that is right."""

    counts: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    @property
    def error(self) -> float:
        """The expected calibration error: mean distance of confidence and accuracy (Guo et al. 2017, eq. 3)."""
        return float((self.counts * np.abs(self.confidence - self.accuracy)).sum() / max(self.counts.sum(), 1))


def reliability(logits: np.ndarray, labels: np.ndarray, temperature: np.ndarray | float = 1.0) -> Reliability:
    """logits [N,C] and classes int [N] -> accuracy by confidence, in BINS bins of equal width: (m/15, (m+1)/15].

    The confidence of a row is the largest probability at the temperature, a number or [N].
    """
    logprobs = _logprobs(logits, temperature)
    confidence, right = np.exp(logprobs.max(1)), logprobs.argmax(1) == labels
    bins = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
    counts = np.bincount(bins, minlength=BINS).astype(np.float64)
    sums = [np.bincount(bins, values, BINS) for values in (confidence, right.astype(np.float64))]
    return Reliability(counts, *(total / np.maximum(counts, 1) for total in sums))


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """logits [N,C], classes int [N] -> the temperature, 0.01 to 100, at which their mean cross entropy is lowest.

    Guo et al. 2017, section 4.2. The loss has one minimum in 1/T: the search is by golden sections of log T.
    """
    from scipy import optimize

    rows = np.arange(len(labels))

    def loss(log_temperature: float) -> float:
        return -float(_logprobs(logits, np.exp(log_temperature))[rows, labels].mean())

    bounds = (np.log(0.01), np.log(100.0))
    fitted = optimize.minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return float(np.exp(fitted.x))


def scaled_reliability(logits: np.ndarray, labels: np.ndarray) -> Reliability:
    """`reliability` after temperature scaling: rows with an even place get the temperature of the odd ones, and the
    odd ones that of the even ones, so that no row is measured at a temperature that was fitted to it."""
    odd = np.arange(len(labels)) % 2 == 1
    fitted = [fit_temperature(logits[half], labels[half]) for half in (odd, ~odd)]
    return reliability(logits, labels, np.where(odd, fitted[1], fitted[0]))


def calibration_metrics(logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """logits [N,C], classes int [N] -> `ece`, the expected calibration error; `temperature`, fitted to all rows; and
    `ece_scaled`, the error that `scaled_reliability` leaves. Fewer than four rows have the first alone."""
    metrics = {"ece": reliability(logits, labels).error}
    if len(labels) < 4:
        return metrics
    scaled = scaled_reliability(logits, labels).error
    return metrics | {"temperature": fit_temperature(logits, labels), "ece_scaled": scaled}


def _logprobs(logits: np.ndarray, temperature: np.ndarray | float) -> np.ndarray:
    """Log-probabilities [N,C] at a temperature, a number or [N]; float64."""
    scaled = logits.astype(np.float64) / np.reshape(temperature, (-1, 1))
    shifted = scaled - scaled.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
