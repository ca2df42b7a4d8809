"""Where the time of a step goes, operation by operation: a trace, read."""

import collections
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from train import UserError


class Operation(NamedTuple):
    """Where in the model operations of the compiled program come from, in all layers; their seconds in all steps and devices; and how many
    ran."""

    origin: str
    seconds: float
    number: int


def trace(folder: Path, work: Callable[[], object]) -> Path:
    """Does the work and records it in the folder, for TensorBoard, XProf or Perfetto; returns the file. Raises UserError where the folder
    cannot be written."""
    import jax

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
    """The operations in the file of a trace, those that took most first. `origins` says by name where they come from (`hlo.origins`)."""
    import jax

    seconds: dict[str, float] = collections.defaultdict(float)
    number: dict[str, int] = collections.Counter()
    for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
        for line in plane.lines:
            for event in line.events:
                if name := origins.get(_operation(line.name, event)):
                    seconds[short(name)] += event.duration_ns / 1e9
                    number[short(name)] += 1
    found = [Operation(origin, seconds[origin], number[origin]) for origin in seconds]
    return sorted(found, key=lambda operation: -operation.seconds)


def _operation(line: str, event) -> str:
    """The name in the program of what an event is about: CPUs and GPUs note it beside the event, TPUs have a line for operations."""
    noted = next((str(value) for name, value in event.stats if name == "hlo_op"), "")
    return noted or (event.name.split(" ")[0].lstrip("%") if line == "XLA Ops" else "")


def table(found: list[Operation], steps: int, most: int = 10) -> dict[str, str]:
    """Rows of the operations that took most: their share, milliseconds a step and how many ran in it."""
    total = sum(operation.seconds for operation in found)
    share = lambda operation: (
        f"{operation.seconds / total:6.1%} {1e3 * operation.seconds / steps:10.3f} ms {operation.number / steps:7.1f} x"
    )
    return {operation.origin: share(operation) for operation in found[:most]}


def short(origin: str) -> str:
    """`jit(f)/transpose(jvp(BD,DF->BF))/while/body/dot_general` as people read it: backward BD,DF->BF/dot_general."""
    first = re.split(r":(?! )", origin)[0]  # of operations that became one
    names = re.sub(r"jit\(\w*\)|transpose|jvp|[()]", "", first).split("/")
    backward = "backward " if "transpose(" in first else ""
    return backward + "/".join(
        name for name in names if name and name not in ("shard_map", "while", "body", "closed_call")
    )
