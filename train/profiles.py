"""Where the time of a step goes, operation by operation: a trace, read."""

import collections
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from train import UserError


class Operation(NamedTuple):
    """An operation of the compiled program: its name there, seconds of it in all steps and devices, how often it ran, and the part of the
    model that it comes from."""

    name: str
    seconds: float
    number: int
    origin: str


def trace(folder: Path, work: Callable[[], object]) -> Path:
    """Does the work and records it in the folder, for TensorBoard, XProf or Perfetto; returns the file. Raises UserError where the folder
    cannot be written."""
    import jax

    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # what Python does takes a thousand times the room, and slows it down
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
                name = _operation(line.name, event)
                if name in origins:
                    seconds[name] += event.duration_ns / 1e9
                    number[name] += 1
    found = [Operation(name, seconds[name], number[name], origins[name]) for name in seconds]
    return sorted(found, key=lambda operation: -operation.seconds)


def _operation(line: str, event) -> str:
    """The name in the program of what an event is about: CPUs and GPUs note it beside the event, TPUs have a line for operations."""
    noted = next((str(value) for name, value in event.stats if name == "hlo_op"), "")
    return noted or (event.name.split(" ")[0].lstrip("%") if line == "XLA Ops" else "")


def table(found: list[Operation], steps: int, most: int = 10) -> dict[str, str]:
    """Rows of the operations that took most: their share, milliseconds a step and how often, and where they come from."""
    total = sum(operation.seconds for operation in found)
    return {
        operation.name: f"{operation.seconds / total:6.1%} {1e3 * operation.seconds / steps:9.3f} ms  {operation.number / steps:5.1f} x  "
        + operation.origin
        for operation in found[:most]
    }


def short(origin: str) -> str:
    """`jit(f)/transpose(jvp(...))/attention[einsum: ...]/dot_general` without what all have in common, and marked where it is of the
    backward pass."""
    backward = "backward " if "transpose(" in origin else ""
    parts = [part for part in re.split(r"/", origin) if not part.startswith(("jit(", "jvp(", "transpose("))]
    return backward + "/".join(parts)
