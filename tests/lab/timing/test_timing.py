"""Times of steps."""

import time

import numpy as np
import pytest
from small import random_job

from train.lab.timing import timing
from train.planning import counting


@pytest.mark.slow
def test_seconds_are_counted_where_they_are_spent():
    job = random_job()
    batches = job.task.batches(job.run)

    def slowly(n):
        time.sleep(0.05)
        return batches(n)

    timed, state = timing.time_steps(job, slowly, warmup=1, steps=3)
    assert all(step_time.data > 0.05 > step_time.host for step_time in timed.steps)
    assert timed.compile > 0.05, "compilation is not among the steps"
    assert int(state.step) == 4
    assert timed.loss == pytest.approx(np.log(64), abs=0.2), "random tokens"
    _, state = timing.time_loop(job, state, batches, steps=2)
    assert int(state.step) == 6
    assert timing.time_data(job, slowly, steps=2) > 0.05


def test_the_roof_is_above_what_a_step_reaches(monkeypatch):
    monkeypatch.setattr(timing, "_ROOF_SIDE", 256)
    job = random_job()
    utilization = timing.utilization(job, counting.model_flops(job), seconds=1.0)
    assert utilization["roof_flops_per_s"] > 1e8
    assert 0 <= utilization["share_of_roof"] < 1e-3


def test_mean_flops_of_equal_batches_are_those_of_one():
    job = random_job()
    assert timing.mean_flops(job, job.task.batches(job.run), steps=3) == counting.model_flops(job)
