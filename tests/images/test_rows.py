"""Rows of pictures: the same on any number of processes and threads, and whatever batch was made before."""

import numpy as np
import pytest

from train.data.labels import LossFields
from train.images import drawings
from train.images.processor import ImageProcessor
from train.images.rows import ImageRows
from train.settings.images import Augment


@pytest.fixture(scope="module")
def rows():
    parts = drawings.generate(train=20, valid=6, withheld=3)
    examples = drawings.rows([*parts.train, *parts.withheld], "shape")
    labels = np.array([drawings.SHAPES.index(row["label"]) for row in examples], np.int32)
    return ImageRows(examples, labels, ImageProcessor((16, 16)), 17)


@pytest.fixture
def augmented(rows):
    rows.train_with(LossFields(), Augment(flip=True, crop=0.5, erase=0.5))
    yield rows
    rows.train_with(LossFields(), Augment())


def rng(n=0):
    return np.random.default_rng(n)


def test_a_batch_is_what_the_processor_makes(rows):
    batch = rows.batch(np.array([3, -1, 21]), rng())
    for place, row in ((0, 3), (2, 21)):
        pixels = rows.processor.normalize(rows.processor.prepare(rows.pictures[row].open(3)))
        np.testing.assert_array_equal(batch["pixels"][place], pixels)
    assert (batch["pixels"][1] == 0).all()
    assert batch["weights"].tolist() == [1, 0, 0]
    assert batch["withheld"].tolist() == [0, 0, 1]
    assert batch["labels"][[0, 2]].tolist() == rows.labels[[3, 21]].tolist()
    assert {name: array.dtype.name for name, array in batch.items()} == {
        "pixels": "float32",
        "labels": "int32",
        "weights": "float32",
        "withheld": "float32",
    }


def test_a_row_does_not_depend_on_the_others(augmented):
    chosen = np.arange(8)
    batch = augmented.batch(chosen, rng(5))
    np.testing.assert_array_equal(augmented.batch(chosen, rng(5))["pixels"], batch["pixels"])
    some = augmented.batch(np.where(chosen % 3, -1, chosen), rng(5))
    np.testing.assert_array_equal(some["pixels"][::3], batch["pixels"][::3])
    assert (augmented.batch(chosen, rng(6))["pixels"] != batch["pixels"]).any()
    assert augmented.independent_rows


def test_mixed_pictures_have_two_classes(rows):
    rows.train_with(LossFields(), Augment(mixup=1.0))
    assert not rows.independent_rows
    chosen = np.arange(6)
    batch = rows.batch(chosen, rng())
    rows.train_with(LossFields(), Augment())
    plain = rows.batch(chosen, rng())
    partners = np.roll(chosen, 1)
    share = batch["shares"][:, None, None, None]
    np.testing.assert_allclose(
        batch["pixels"], share * plain["pixels"] + (1 - share) * plain["pixels"][partners], atol=1e-6
    )
    assert batch["partners"].tolist() == rows.labels[partners].tolist()
