"""The time of each operation of a step, from a trace of the profiler."""

import collections
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import jax

from train import UserError
from train.lab.timing import timing
from train.planning import hlo
from train.runs.state import State
from train.screens.console import Log
from train.training.job import Job

# Steps that a profile records.
_PROFILED_STEPS = 5


class Operation(NamedTuple):
    """Operations of the compiled program with one origin in the model, in all layers.

    seconds: their time, over all steps and devices
    runs: how often they ran
    """

    origin: str
    seconds: float
    runs: int


def trace(folder: Path, work: Callable[[], object]) -> Path:
    """Does the work and records it in the folder, for TensorBoard, XProf or Perfetto; returns the file.

    Raises UserError if the folder cannot be written.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # M32: Python events take a thousand times the space
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with jax.profiler.trace(str(folder), profiler_options=options):
            work()
    except OSError as error:
        raise UserError(f"--profile={folder} cannot be written: {error.strerror}") from error
    return max(folder.glob("**/*.xplane.pb"), key=lambda path: path.stat().st_mtime)


def operations(path: Path, origins: Mapping[str, str]) -> list[Operation]:
    """The operations in the file of a trace, the longest first; `origins` by instruction are those of `hlo.origins`."""
    seconds: dict[str, float] = collections.defaultdict(float)
    runs: dict[str, int] = collections.Counter()
    for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
        for line in plane.lines:
            for event in line.events:
                if name := origins.get(_instruction(line.name, event)):
                    origin = short_origin(name)
                    seconds[origin] += event.duration_ns / 1e9
                    runs[origin] += 1
    longest = sorted(seconds, key=lambda origin: -seconds[origin])
    return [Operation(origin, seconds[origin], runs[origin]) for origin in longest]


def _instruction(line: str, event) -> str:
    """The instruction of an event: CPUs and GPUs give it as a property, TPUs as the name in a line of its own."""
    instruction = next((str(value) for name, value in event.stats if name == "hlo_op"), "")
    return instruction or (event.name.split(" ")[0].lstrip("%") if line == "XLA Ops" else "")


def table(operations: list[Operation], steps: int, rows: int = 10) -> dict[str, str]:
    """The first `rows` operations: their share of the time, milliseconds a step and how often they run in a step."""
    total = sum(operation.seconds for operation in operations)

    def row(operation: Operation) -> str:
        milliseconds = 1e3 * operation.seconds / steps
        return f"{operation.seconds / total:6.1%} {milliseconds:10.3f} ms {operation.runs / steps:7.1f} x"

    return {operation.origin: row(operation) for operation in operations[:rows]}


def short_origin(origin: str) -> str:
    """`jit(f)/transpose(jvp(BD,DF->BF))/while/body/dot_general` -> `backward BD,DF->BF/dot_general`."""
    first = re.split(r":(?! )", origin)[0]  # of operations that are fused
    names = re.sub(r"jit\(\w*\)|transpose|jvp|[()]", "", first).split("/")
    backward = "backward " if "transpose(" in first else ""
    return backward + "/".join(
        name for name in names if name and name not in ("shard_map", "while", "body", "closed_call")
    )


def profile_steps(folder: str, job: Job, state: State, batch: timing.Batch) -> None:
    """Records a few steps of a job with this batch in a folder, and prints the operations that took most."""
    log = Log()
    with jax.set_mesh(job.mesh):
        arrays = timing.on_devices(job, batch)
        program = job.train_step.lower(state, arrays).compile().as_text()
    path = trace(Path(folder), lambda: timing.time_loop(job, state, lambda step: batch, _PROFILED_STEPS))
    by_origin = operations(path, hlo.origins(program))
    log.table(f"of the time of all devices in {_PROFILED_STEPS} steps", table(by_origin, _PROFILED_STEPS))
    log.info(f"recorded in {path}; for pictures: tensorboard --logdir={folder}, with its plugin xprof")
