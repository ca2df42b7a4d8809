"""Batches of pairs of similar lengths: every pair once an epoch, few shapes, little padding, the same for a seed."""

import numpy as np
import pytest

from train.data import feed
from train.data.buckets import Buckets, bucket_shapes, bucket_sizes
from train.settings.schema import Batch


def some_lengths(rows=3000, seed=0):
    rng = np.random.default_rng(seed)
    source = np.clip(rng.gamma(6, 2.5, rows), 2, 60).astype(int)
    return np.stack([source, np.clip(source + rng.normal(0, 3, rows), 2, 60).astype(int)], axis=1)


def buckets_of(lengths, batch, max_shapes):
    return Buckets(lengths, bucket_shapes(lengths, batch, max_shapes))


LENGTHS = some_lengths()
BATCH = Batch(tokens=1024, length=64)
BUCKETS = buckets_of(LENGTHS, BATCH, 12)


@pytest.mark.parametrize("rng", [None, np.random.default_rng(0)], ids=["in order", "shuffled"])
def test_every_pair_is_in_exactly_one_batch(rng):
    batches = BUCKETS.epoch(rng)
    assert len(batches) == BUCKETS.batches
    rows = np.concatenate(batches)
    np.testing.assert_array_equal(np.sort(rows[rows >= 0]), np.arange(len(LENGTHS)))


def test_batches_keep_to_their_shapes():
    assert len(BUCKETS.shapes) <= 12
    places = 0
    for rows in BUCKETS.epoch(np.random.default_rng(1)):
        shape = BUCKETS.shape(rows)
        assert len(rows) == shape.rows
        assert shape.rows % 8 == 0
        assert shape.rows * max(shape.lengths) <= 1024
        assert (LENGTHS[rows[rows >= 0]].max(0) <= shape.lengths).all()
        places += shape.rows * sum(shape.lengths)
    assert BUCKETS.padding == pytest.approx(1 - LENGTHS.sum() / places)


def test_examples_are_one_of_every_shape():
    assert [BUCKETS.shape(rows) for rows in BUCKETS.examples()] == BUCKETS.shapes
    assert [len(rows) for rows in BUCKETS.examples()] == [shape.rows for shape in BUCKETS.shapes]
    assert all((rows[1:] == -1).all() and rows[0] >= 0 for rows in BUCKETS.examples())


def test_more_shapes_leave_less_padding():
    paddings = [buckets_of(LENGTHS, BATCH, max_shapes).padding for max_shapes in (1, 4, 16)]
    assert paddings[0] > 0.4
    assert paddings[1] < 0.3
    assert paddings[2] < 0.17
    assert buckets_of(np.full((128, 2), 7), BATCH, 16).padding == 0
    assert len(bucket_sizes(np.full((100, 2), 7), 16)) == 1, "equal lengths need one shape"


def test_a_pair_longer_than_the_tokens_has_a_batch_all_the_same():
    buckets = buckets_of(np.array([[100, 90], [3, 3]]), Batch(tokens=64, length=64), 4)
    assert sorted(shape.rows for shape in buckets.shapes) == [8, 8]


def test_rows_without_tokens_have_a_batch_all_the_same():
    buckets = buckets_of(np.array([[0], [0], [3]]), Batch(size=2), 4)
    assert sorted(shape.lengths for shape in buckets.shapes) == [(0,), (3,)]


def test_a_number_of_rows_instead_of_tokens():
    buckets = buckets_of(LENGTHS, Batch(size=24), 4)
    assert {shape.rows for shape in buckets.shapes} == {24}


@pytest.mark.parametrize("columns", [1, 2])
def test_sizes_are_as_good_as_those_of_a_search(columns):
    """Against every choice of two sizes, the larger one of which holds all rows."""
    lengths = np.stack([np.minimum(some_lengths(60, seed=3), 30)[:, side] for side in range(columns)], axis=1)
    largest = lengths.max(0)
    costs = []
    for small in np.ndindex(*(largest + 1)):
        fits = (lengths <= small).all(1)
        costs.append(fits.sum() * sum(small) + (~fits).sum() * largest.sum())
    sizes = bucket_sizes(lengths, 2)
    fits = (lengths <= sizes[sizes.sum(1).argmin()]).all(1)
    assert fits.sum() * sizes.sum(1).min() + (~fits).sum() * sizes.sum(1).max() <= 1.03 * min(costs)
    assert sizes.max(0).tolist() == largest.tolist()


def test_batch_n_depends_on_the_seed_and_n_alone():
    buckets = [BUCKETS, buckets_of(some_lengths(500, seed=2), BATCH, 4)]
    order, same_order, order_of_4 = (feed.shuffled_batches(buckets, seed) for seed in (3, 3, 4))
    total = buckets[0].batches + buckets[1].batches
    steps = [0, total - 1, total, 5, 2 * total + 1]
    for n in steps:
        np.testing.assert_equal(order(n), same_order(n))
    assert any(order(n)[1].tolist() != order_of_4(n)[1].tolist() for n in steps)
    for cycle in range(2):  # segmentations take turns, and all pairs of each come once
        for segmentation, first in ((0, 0), (1, buckets[0].batches)):
            batches = [order(cycle * total + first + k) for k in range(buckets[segmentation].batches)]
            assert {int(index) for chosen, _ in batches for index in chosen} == {segmentation}
            seen = np.concatenate([rows for _, rows in batches])
            np.testing.assert_array_equal(np.sort(seen[seen >= 0]), np.arange(len(buckets[segmentation].shape_of)))
    assert order(0)[1].tolist() != order(total)[1].tolist()
