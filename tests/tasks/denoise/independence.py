"""What holds of rows with any noise."""

import numpy as np


def assert_independent(rows):
    """A row of a batch does not depend on rows that other processes have."""
    numbers = np.array([5, 0, 17, 30])
    every, some = (
        rows.batch(chosen, np.random.default_rng(4)) for chosen in (numbers, np.where(numbers == 17, 17, -1))
    )
    for name, field in every.items():
        np.testing.assert_array_equal(field[2], some[name][2])
    assert not some["weights"][[0, 1, 3]].any()
    assert not some["valid"][[0, 1, 3]].any()
