"""The interval between checkpoints, against runs that are simulated fault by fault."""

import json
import random

import pytest
from small import TINY, call

from train import plan
from train.planning.faults import Faults


def simulated(faults, interval, checkpoints, seed):
    """How many times as long a run takes: until a checkpoint is written without a fault, all since the last is lost."""
    rng = random.Random(seed)
    now, fault = 0.0, rng.expovariate(1 / faults.between)

    def passes(seconds):
        nonlocal now, fault
        if now + seconds <= fault:
            now += seconds
            return True
        now = fault
        fault += rng.expovariate(1 / faults.between)
        return False

    for _ in range(checkpoints):
        while not passes(interval + faults.save):
            while not passes(faults.restart):
                pass
    return now / (checkpoints * interval)


@pytest.mark.parametrize(
    "faults", [Faults(3600, 20, 300), Faults(3600, 600, 900), Faults(1e6, 60, 300)], ids=["often", "slow", "rare"]
)
def test_time_of_a_run(faults):
    for interval in (faults.interval / 3, faults.interval, 4 * faults.interval):
        expected = simulated(faults, interval, 20_000, seed=1)
        assert faults.slowdown(interval) == pytest.approx(expected, rel=0.02)
    shortest = min(faults.slowdown(faults.interval * step / 100) for step in range(20, 400))
    assert faults.slowdown(faults.interval) < 1.001 * shortest


@pytest.mark.parametrize(("hours", "minutes"), [(24, 117), (6, 57), (0.25, 9.1)])
def test_intervals_of_the_paper(hours, minutes):
    """Daly 2006, figures 3 to 5: a checkpoint takes 5 minutes."""
    assert Faults(3600 * hours, 300, 600).interval / 60 == pytest.approx(minutes, rel=0.01)


def test_a_run_that_never_ends():
    faults = Faults.of(1e9, 1000, 1e15, 1e6, 300)
    assert faults.slowdown(faults.interval) == float("inf")


@pytest.mark.slow
def test_the_rows_of_a_plan():
    """Failures of 8 devices, once a day each: 3 hours between them."""
    flags = ["--topology=h100:8", "--tokens=1000000000", "--fault-rate=365.25", "--save-rate=1e6", "--restart=100"]
    code, out, err = call(plan.main, *TINY, *flags)
    assert code == 0
    report = json.loads(out)
    state = report["checkpoint"]
    faults = Faults(3 * 3600, state / 1e6, 100 + state / 1e6)
    about = report["faults"]
    assert about["seconds_between"] == pytest.approx(3 * 3600)
    assert about["interval_seconds"] == pytest.approx(faults.interval)
    assert about["slowdown"] == pytest.approx(faults.slowdown(faults.interval))
    assert "one in 3.0 h; best saved every" in err
    assert "as a store, 2 bytes a token: 2.0 GB" in err
    # Weights, and two moments of each, in float32, and a few numbers.
    weights = report["memory"]["parameters"]
    assert 3 * weights <= state < 3.1 * weights


@pytest.mark.parametrize(("flag", "says"), [("--fault-rate=0", "fault-rate=0"), ("--save-rate=-1", "save-rate=-1")])
def test_bad_rates(flag, says):
    code, out, err = call(plan.main, *TINY, "--topology=h100:8", flag)
    assert (code, out) == (2, "")
    assert says in err
