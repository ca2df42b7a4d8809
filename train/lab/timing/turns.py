"""Several things that are timed in turns: what the machine does meanwhile slows all of them."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import jax
import numpy as np

import tfm
from train.devices import cpu
from train.lab.timing.timing import Batches, on_devices
from train.planning.counting import model_flops
from train.training.job import Job

# Turns of each side, and the least steps of a turn.
TURNS = 8
_SHORTEST = 2

# Seconds, or several seconds of one pass.
Measured = TypeVar("Measured", float, list[float])

# From values to the two bounds of their mean.
Interval = Callable[..., tuple[float, float]]


def take_turns(
    sides: Mapping[str, Callable[[int], Sequence[Measured]]], warmup: int, size: int
) -> dict[str, list[Measured]]:
    """Sides, which take a count and return as many measurements, in `TURNS` turns -> their medians by turn.

    Who begins alternates; the first `warmup` measurements are left out.
    """
    turns: dict[str, list[Measured]] = {name: [] for name in sides}
    for side in sides.values():
        side(warmup)
    for turn in range(TURNS):
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            turns[name].append(np.median(np.asarray(sides[name](size)), axis=0).tolist())
    return turns


def turn_steps(steps: int) -> int:
    """The steps of a turn, where all turns have `steps`."""
    return max(_SHORTEST, -(-steps // TURNS))


class Steps:
    """The steps of a job, each waited for; its state stays on the devices between turns."""

    def __init__(self, job: Job, batches: Batches):
        self.job, self.batches = job, batches
        self.state, self.count = job.new_state(), 0

    def seconds(self, count: int) -> list[float]:
        """The seconds of the next steps."""
        times = []
        with jax.set_mesh(self.job.mesh):
            for n in range(self.count, self.count + count):
                start = time.perf_counter()
                self.state, sums = self.job.train_step(self.state, on_devices(self.job, self.batches(n)))
                jax.block_until_ready((self.state, sums))
                times.append(time.perf_counter() - start)
        self.count += count
        return times


def ratio(numerator: Sequence[float], denominator: Sequence[float], interval: Interval) -> dict[str, object]:
    """The seconds of turns -> the ratio of both sides, the geometric mean, with its interval of 95 %."""
    logs = np.log(numerator) - np.log(denominator)
    return {
        "ratio": round(float(np.exp(logs.mean())), 3),
        "ratio_interval": [round(float(np.exp(bound)), 3) for bound in interval(logs)],
        "ratio_turns": len(logs),
    }


def side_by_side(
    jobs: Sequence[tuple[Job, Batches]], warmup: int, steps: int, interval: Interval
) -> list[dict[str, object]]:
    """For each job: milliseconds of a step, parameters, operations, and the ratio of its time to that of the first."""
    first_job, _ = jobs[0]
    # traced: a model that cannot be is refused before any is timed
    flops = [model_flops(job) for job, _ in jobs]
    with cpu.awake(first_job.mesh.local_devices, first_job.run.cpu.keep_awake):
        sides = {str(index): Steps(*job).seconds for index, job in enumerate(jobs)}
        turns = list(take_turns(sides, warmup, turn_steps(steps)).values())
    return [
        {
            "ms_median": round(1e3 * statistics.median(seconds), 3),
            "params": tfm.count_params(job.specs),
            "flops": operations,
            **ratio(seconds, turns[0], interval),
        }
        for (job, _), operations, seconds in zip(jobs, flops, turns, strict=True)
    ]
