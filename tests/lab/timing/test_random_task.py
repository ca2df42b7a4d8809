"""A plain model on random tokens."""

import numpy as np
import pytest
from small import random_job


@pytest.mark.parametrize(("family", "predict"), [("bert", 0.25), ("seq2seq", 1.0)])
def test_batches_have_the_declared_fields(family, predict):
    job = random_job(family, predict)
    first, second = map(job.task.batches(job.run), (0, 1))
    assert {name: (field.dtype.type, field.shape) for name, field in first.items()} == {
        name: (field.dtype, field.shape(8, 12)) for name, field in job.batch_spec.items()
    }
    assert (first["tokens"] != second["tokens"]).any()
    if predict < 1:
        assert (first["where"] == np.arange(3)).all()
