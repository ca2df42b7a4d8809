"""The cheapest assignment, against scipy's."""

import jax
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from train.losses.assignment import assign


@pytest.mark.parametrize(("objects", "queries"), [(1, 1), (3, 3), (4, 7)])
def test_an_assignment_is_that_of_scipy(objects, queries):
    """With rows of fewer objects, of none, with negative and with equal costs."""
    rng = np.random.default_rng(objects)
    costs = rng.normal(size=(64, objects, queries)).astype(np.float32)
    costs[32:] = rng.integers(-2, 3, costs[32:].shape)
    is_object = rng.random((64, objects)) < 0.7
    matched = np.asarray(jax.jit(assign)(costs, is_object))
    assert (matched.sum(2) == is_object).all()
    assert matched.sum(1).max() <= 1
    for row in range(64):
        rows, columns = linear_sum_assignment(costs[row][is_object[row]])
        expected = costs[row][is_object[row]][rows, columns].sum()
        assert (matched[row] * costs[row]).sum() == pytest.approx(expected, abs=1e-4)
