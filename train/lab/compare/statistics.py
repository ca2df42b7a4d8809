"""Statistics of paired runs: runs of two rows with one seed have the same data order, so their difference says more."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

# The most values of which all resamples are enumerated, and the resamples that are drawn of more values.
_EXACT, _RESAMPLES = 6, 20_000

LEVEL = 0.95


class Paired(NamedTuple):
    """The differences of a row to the first one.

    mean: their mean
    low, high: the bootstrap interval of the mean; None of fewer than two seeds
    agree: how many of them have the sign of the mean
    n: seeds that both rows have finished
    """

    mean: float
    low: float | None
    high: float | None
    agree: int
    n: int


def paired(values: Mapping[int, float], baseline: Mapping[int, float]) -> Paired | None:
    """Values by seed, minus those of the first row with the same seeds; None where no seed is in both."""
    differences = np.array([values[seed] - baseline[seed] for seed in sorted(values.keys() & baseline.keys())])
    if not len(differences):
        return None
    mean = float(differences.mean())
    low, high = bootstrap_interval(differences) if len(differences) > 1 else (None, None)
    return Paired(mean, low, high, int((np.sign(differences) == np.sign(mean)).sum()), len(differences))


def bootstrap_interval(values: Sequence[float] | np.ndarray, level: float = LEVEL) -> tuple[float, float]:
    """The percentile interval of the mean (Efron 1979): the middle `level` of the means of all resamples.

    Resamples of few values are enumerated, so that nothing is drawn; those of more have a fixed seed.
    """
    sample = np.asarray(values, float)
    count = len(sample)
    if count <= _EXACT:
        index = np.array(list(itertools.product(range(count), repeat=count)))
    else:
        index = np.random.default_rng(0).integers(0, count, (_RESAMPLES, count))
    low, high = np.quantile(sample[index].mean(1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def mean_and_deviation(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and the standard deviation of a sample (n - 1), 0 of one value."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
