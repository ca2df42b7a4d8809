"""Pairs that share rows: every pair once, in one shape, with little padding; and buckets where packing loses."""

import itertools

import numpy as np
import pytest

from train.data.buckets import Buckets, bucket_shapes
from train.settings.schema import Batch
from train.tasks.translate import pair_packing


def some_lengths(pairs=2000, mean=12, longest=60, seed=0):
    rng = np.random.default_rng(seed)
    source = np.clip(rng.gamma(5, mean / 5, pairs), 3, longest).astype(int)
    return np.stack([source, np.clip(source + rng.normal(0, 3, pairs), 3, longest).astype(int)], axis=1)


LENGTHS = some_lengths()
BATCH = Batch(tokens=2048, length=64)
PLAN = pair_packing.plan(LENGTHS, BATCH, 14, None)


def test_every_pair_has_one_row_that_holds_it():
    np.testing.assert_array_equal(np.sort(PLAN.order), np.arange(len(LENGTHS)))
    rows = [LENGTHS[PLAN.order[first:end]].sum(0) for first, end in itertools.pairwise(PLAN.bounds)]
    assert min(map(min, rows)) > 0, "no row is empty"
    assert (np.array(rows) <= PLAN.buckets.shapes[0].lengths).all()
    assert PLAN.packs


def test_there_is_one_shape_and_little_padding():
    (shape,) = PLAN.buckets.shapes
    assert shape.rows % 8 == 0
    assert 0.7 * 2048 <= shape.rows * max(shape.lengths) <= 2048
    places = PLAN.buckets.batches * shape.rows * sum(shape.lengths)
    assert PLAN.buckets.padding == pytest.approx(1 - LENGTHS.sum() / places)
    assert PLAN.buckets.padding <= 0.05
    assert PLAN.buckets.padding < Buckets(LENGTHS, bucket_shapes(LENGTHS, BATCH, 14)).padding


def test_packing_is_nearly_as_good_as_any():
    """Against all partitions of a few pairs into rows."""
    rng = np.random.default_rng(1)
    for _ in range(5):
        lengths, capacity = rng.integers(2, 8, (6, 2)), np.array([10, 10])
        fewest = min(
            len(set(rows))
            for rows in itertools.product(range(4), repeat=6)
            if all((lengths[np.array(rows) == row].sum(0) <= capacity).all() for row in set(rows))
        )
        row_of = pair_packing.pack(lengths, capacity)
        assert all((lengths[row_of == row].sum(0) <= capacity).all() for row in range(6))
        assert row_of.max() + 1 <= fewest + 1


def test_buckets_stay_where_packing_loses():
    few = np.array([[20, 20], [21, 19], [20, 21], [19, 21]] * 8)
    batch = Batch(tokens=768, length=24)
    assert not pair_packing.plan(few, batch, 14, None).packs, "no two fit into a row, and longer rows are few"
    assert not pair_packing.plan(LENGTHS, BATCH, 14, False).packs
    assert pair_packing.plan(some_lengths(60), BATCH, 14, True).packs
    rows = pair_packing.plan(few, batch, 14, None)
    np.testing.assert_array_equal(rows.bounds, np.arange(33))


def test_other_pairs_keep_the_shape():
    few = pair_packing.plan(some_lengths(100, seed=3), BATCH, 7, None, like=PLAN)
    assert few.buckets.shapes == PLAN.buckets.shapes
    long = pair_packing.plan(np.array([[64, 64], [3, 3]]), BATCH, 7, None, like=PLAN)
    assert min(long.buckets.shapes[0].lengths) >= 64
    assert long.buckets.shapes[0].rows == PLAN.buckets.shapes[0].rows


def test_a_number_of_rows_instead_of_tokens():
    (shape,) = pair_packing.plan(LENGTHS, Batch(size=24, length=64), 14, True).buckets.shapes
    assert shape.rows == 24
    assert 60 <= max(shape.lengths) <= 64, "rows that fill the last batch too may be shorter"
