"""Statistics of paired runs against plain loops."""

import itertools
import math
import random

import pytest

from train.lab.compare.statistics import bootstrap_interval, mean_and_deviation, paired


def quantile(values, q):
    """The quantile with linear interpolation between ranks, in plain Python."""
    ranked = sorted(values)
    place = q * (len(ranked) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (place - low) * (ranked[high] - ranked[low])


@pytest.mark.parametrize("values", [[0.5, -1.0], [3.0, 1.0, 2.0], [0.2, 0.1, 0.4, 0.3], [1.0, 5.0, 2.0, 2.0, 9.0]])
def test_the_interval_of_few_values_is_that_of_all_resamples(values):
    means = [sum(sample) / len(values) for sample in itertools.product(values, repeat=len(values))]
    assert bootstrap_interval(values) == pytest.approx((quantile(means, 0.025), quantile(means, 0.975)), abs=1e-12)


def test_the_interval_of_many_values_is_near_that_of_a_bootstrap_of_our_own():
    draw = random.Random(1)
    values = [draw.gauss(2, 1) for _ in range(12)]
    means = [sum(draw.choices(values, k=12)) / 12 for _ in range(20_000)]
    expected = (quantile(means, 0.025), quantile(means, 0.975))
    assert bootstrap_interval(values) == pytest.approx(expected, abs=0.03)
    assert bootstrap_interval(values) == bootstrap_interval(values), "nothing depends on when it runs"


def test_equal_values_have_no_width():
    assert bootstrap_interval([0.25] * 5) == (0.25, 0.25)


def test_differences_are_of_equal_seeds():
    """Seed 3 is not done in the first row. Two of three differences are below 0, as their mean is."""
    result = paired({0: 1.0, 1: 2.0, 2: 3.5, 3: 9.0}, {0: 2.0, 1: 4.0, 2: 3.0, 4: 0.0})
    assert (result.mean, result.agree, result.n) == (pytest.approx((-1 - 2 + 0.5) / 3), 2, 3)
    assert result.low == pytest.approx(
        quantile([sum(s) / 3 for s in itertools.product([-1, -2, 0.5], repeat=3)], 0.025)
    )
    assert paired({0: 1.0}, {1: 1.0}) is None
    assert paired({0: 1.0}, {0: 2.0}) == (-1.0, None, None, 1, 1)


def test_mean_and_deviation():
    values = [1.0, 2.0, 4.0]
    deviation = math.sqrt(sum((value - 7 / 3) ** 2 for value in values) / 2)
    assert mean_and_deviation(values) == pytest.approx((7 / 3, deviation))
    assert mean_and_deviation([3.0]) == (3.0, 0.0)
