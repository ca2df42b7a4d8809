"""Data without anything to predict."""

from types import SimpleNamespace

import numpy as np
import pytest

from train import UserError
from train.data.fields import Field
from train.data.targets import check_targets
from train.settings.schema import Batch, Data

SPEC = {
    "tokens": Field("BT", np.int32),
    "weights": Field("BM", np.float32, weighs=True),
    "pairs": Field("B", np.float32, weighs=True),
}


def corpus(train, valid, pairs=0.0, eval_data=""):
    """Batches whose targets weigh so much."""

    def batch(weight):
        return {"tokens": np.ones((2, 3)), "weights": np.full((2, 1), weight), "pairs": np.full(2, pairs)}

    run = SimpleNamespace(data=Data("train.txt", eval_data), batch=Batch(size=2))
    return SimpleNamespace(
        run=run,
        train=[Rows(2 * len(train))] if train else [],
        batch=lambda n: batch(train[n]),
        valid_batches=lambda count: map(batch, valid[: count or None]),
    )


class Rows:
    buckets = None

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count


@pytest.mark.parametrize(
    ("train", "valid", "batches", "flag"),
    [
        ([0, 0, 1], [0, 1], 0, None),
        ([], [1], 0, None),
        ([0, 0], [1], 0, "training data train.txt can be predicted: .* with --data, or another tokenizer"),
        ([1], [0, 0], 0, "validation data dev.txt can be predicted: its texts .* with --eval-data, or"),
        ([1], [0, 1], 1, "validation data dev.txt can be predicted"),
    ],
)
def test_data_without_targets_are_refused(train, valid, batches, flag):
    data = corpus(train, valid, eval_data="dev.txt")
    if flag is None:
        check_targets(data, SPEC, batches)
    else:
        with pytest.raises(UserError, match=f"^nothing in the {flag}"):
            check_targets(data, SPEC, batches)
    check_targets(corpus(train, valid, pairs=1.0), SPEC, batches)


def test_the_flag_of_the_command_is_named():
    """train.evaluate has --data where train.main has --eval-data."""
    with pytest.raises(UserError, match="name other text with --data, or another tokenizer"):
        check_targets(corpus([], [0], eval_data="dev.txt"), SPEC, valid_flag="--data")
