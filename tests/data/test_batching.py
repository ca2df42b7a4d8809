"""Batches of one size."""

import itertools
import threading
import time

import numpy as np
import pytest

from train.data.ahead import side_by_side
from train.data.batching import length_sorted_batches, row_batches


@pytest.mark.parametrize("size", [1, 3, 4, 9])
def test_every_row_counts_once_in_batches_of_one_size(size):
    order = [5, 0, 3, 1, 4, 2, 6]
    batches = list(row_batches(order, size))
    assert [row for rows, count in batches for row in rows[:count]] == order
    assert all(rows.shape == (size,) for rows, _ in batches)
    assert all((rows[count:] == rows[count - 1]).all() for rows, count in batches)


def test_rows_of_similar_lengths_share_a_batch():
    lengths = [7, 2, 9, 2, 7, 1]
    batches = list(length_sorted_batches(lengths, 4))
    np.testing.assert_array_equal(np.stack([rows for rows, _ in batches]), [[5, 1, 3, 0], [4, 2, 2, 2]])
    assert [count for _, count in batches] == [4, 2]
    assert list(length_sorted_batches([], 4)) == []


@pytest.mark.parametrize("count", [1, 3])
def test_batches_side_by_side_keep_their_order(count):
    """Also where later ones are ready first; an error comes after the results before it."""
    working, together, lock = set(), [], threading.Lock()

    def work(item):
        with lock:
            working.add(item)
            together.append(len(working))
        time.sleep(0.002 * (5 - item % 5))
        with lock:
            working.remove(item)
        if item == 17:
            raise ValueError("17")
        return item * item

    results = side_by_side(work, range(20), count)
    assert list(itertools.islice(results, 17)) == [item * item for item in range(17)]
    with pytest.raises(ValueError, match="17"):
        next(results)
    assert (max(together) > 1) == (count > 1)
    assert max(together) <= count
