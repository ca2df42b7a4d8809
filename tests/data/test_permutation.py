"""Permutations of any size, computed member by member."""

import numpy as np
import pytest

from train.data import feed
from train.data.permutation import permute

SIZES = sorted({*range(1, 120), *(4**k + d for k in range(3, 9) for d in (-1, 0, 1)), *range(1000, 40_000, 573)})


def test_every_size_has_a_permutation():
    """All of 200 sizes, those behind a power of four too, where ciphers on pairs of bits have one value too few."""
    assert len(SIZES) >= 200
    for size in SIZES:
        assert np.array_equal(np.sort(permute(np.arange(size), size, (3, size))), np.arange(size)), size


def test_a_member_needs_no_others():
    places = np.array([16_384, 0, 77, 16_384])
    everything = permute(np.arange(16_385), 16_385, (1, 2, 3))
    np.testing.assert_array_equal(permute(places, 16_385, (1, 2, 3)), everything[places])
    assert permute(np.array([10**12 - 1]), 10**12, (0,))[0] < 10**12
    assert len(permute(np.zeros(0, int), 5, (0,))) == 0


def test_keys_name_permutations():
    orders = {permute(np.arange(40), 40, key).tobytes() for key in [(0,), (1,), (0, 1), (1, 0), (2**31, 5, 10**9)]}
    assert len(orders) == 5


def test_order_is_random():
    """Neighbours differ as those of a random order do, and places and members are independent (chi squared / dof)."""
    size = 1 << 16
    order, random = permute(np.arange(size), size, (0, 0, 0)), np.random.default_rng(0).permutation(size)
    distinct = [len(np.unique(values[:-1] ^ values[1:])) for values in (order, random)]
    assert distinct[0] == pytest.approx(distinct[1], rel=0.02)
    grid = np.histogram2d(np.arange(size), order, bins=32)[0]
    assert 0.8 < ((grid - size / 1024) ** 2 / (size / 1024)).sum() / 31**2 < 1.2


def test_epochs_of_a_run_are_permutations():
    """Also of 4^8 + 1 rows, where a row came twice and another one never."""
    rows_of = feed.shuffled_rows([4**8 + 1], seed=0, batch_size=4**8 + 1)
    first, second = rows_of(0)[1], rows_of(1)[1]
    for epoch in (first, second):
        np.testing.assert_array_equal(np.sort(epoch), np.arange(4**8 + 1))
    assert (first != second).any()
