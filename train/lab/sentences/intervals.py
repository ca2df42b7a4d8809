"""Metrics of a task with 95 % intervals: what another draw of as many test rows might give."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Standard deviations on each side of a mean; resamples of a bootstrap.
_WIDTH, _RESAMPLES = 1.959964, 10_000


class Metric(NamedTuple):
    """A value, and the ends of its interval; none where it has no interval."""

    value: float
    low: float | None = None
    high: float | None = None


def share(is_right: np.ndarray) -> Metric:
    """bool [N] -> how many are true, in hundredths; Wilson's interval (1927)."""
    count, value = len(is_right), float(is_right.mean())
    spare = _WIDTH**2 / count
    middle = (value + spare / 2) / (1 + spare)
    half = _WIDTH * np.sqrt(value * (1 - value) / count + spare / (4 * count)) / (1 + spare)
    return Metric(100 * value, 100 * float(middle - half), 100 * float(middle + half))


def f1(guesses: np.ndarray, golds: np.ndarray) -> Metric:
    """bool [N], bool [N] -> F1 in hundredths; the percentile interval of a bootstrap of rows (Efron 1979)."""
    counts = np.array([(guesses & golds).sum(), (guesses != golds).sum()])
    rest = len(golds) - counts.sum()
    draws = np.random.default_rng(0).multinomial(len(golds), np.append(counts, rest) / len(golds), _RESAMPLES)
    scores = 200 * draws[:, 0] / np.maximum(2 * draws[:, 0] + draws[:, 1], 1)
    value = float(200 * counts[0] / max(2 * counts[0] + counts[1], 1))
    return Metric(value, *map(float, np.quantile(scores, [0.025, 0.975])))


def correlation(guesses: np.ndarray, golds: np.ndarray, kind: str) -> Metric:
    """float [N], float [N] -> Pearson's or Spearman's correlation in hundredths; 0 where one of both is constant.

    Fisher's interval (1915); that of ranks is wider by 1.06 in the variance (Fieller et al. 1957).
    """
    from scipy import stats

    if len(golds) < 2 or np.ptp(guesses) == 0 or np.ptp(golds) == 0:
        return Metric(0.0)
    value = float((stats.pearsonr if kind == "pearson" else stats.spearmanr)(guesses, golds).statistic)
    if len(golds) < 4 or abs(value) >= 1:
        return Metric(100 * value)
    half = _WIDTH * np.sqrt((1 if kind == "pearson" else 1.06) / (len(golds) - 3))
    low, high = np.tanh(np.arctanh(value) + np.array([-half, half]))
    return Metric(100 * value, 100 * float(low), 100 * float(high))


def mean(metrics: Sequence[Metric], weights: np.ndarray) -> Metric:
    """The weighted mean of independent metrics, whose variances add up."""
    shares = weights / weights.sum()
    value = float(shares @ np.array([metric.value for metric in metrics]))
    if any(metric.low is None or metric.high is None for metric in metrics):
        return Metric(value)
    halves = np.array([((metric.high or 0) - (metric.low or 0)) / 2 for metric in metrics])
    half = float(np.sqrt(np.square(shares * halves).sum()))
    return Metric(value, value - half, value + half)
