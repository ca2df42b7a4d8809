"""What to change where a run does not fit into the memory of its devices."""

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping

from tfm.config.model import CHOICES
from train import UserError
from train.settings import flags
from train.settings.schema import Run

# What the backward pass computes again, so as not to keep it: less and less memory, and more and more time.
REMAT = tuple(name for name in ("none", "dots", "block", "offload") if name in CHOICES["remat"])

# Bytes that a device needs for a run, by what for, and "all". Raises UserError where the run does not divide over its devices.
Needs = Callable[[Run], Mapping[str, float]]


def first_that_fits(run: Run, devices: int, needs: Needs, room: float) -> Iterator[Run]:
    """The runs that differ from this one in remat, accumulation or sharding and need no more than `room` bytes, the nearest first.

    Remat is tried first, then more parts of a batch, then more pieces of the parameters, then pieces of every layer.
    """
    size = functools.cache(lambda other: _size(other, needs))
    for sharded in _shardings(run, devices):
        each = list(_savings(sharded))
        least = next((found for other in reversed(each) if (found := size(other)) < math.inf), math.inf)
        if least <= room:  # or none of them fits
            yield from (other for other in each if other != run and size(other) <= room)


def changes(run: Run, other: Run) -> str:
    """The flags that lead from one run to another."""
    before, after = flags.flatten(run), flags.flatten(other)
    return " ".join(f"--{name.replace('_', '-')}={value}" for name, value in after.items() if value != before[name])


def advise(run: Run, devices: int, needs: Needs, room: float | None) -> str:
    """One or two plain sentences for a run that ran out of memory on devices with `room` bytes, None where that is not known.

    It needs more than was estimated or it would have fitted, so what is advised needs a fifth less than it, at least.
    """
    needs = functools.cache(needs)
    found = needs(run)
    having = f" that has {amount(room)}" if room else ""
    said = f"out of memory: the step needs about {amount(found['all'])} on a device{having} ({parts(found)})"
    other = next(first_that_fits(run, devices, needs, min(room or found["all"], 0.8 * found["all"])), None)
    if other is None:
        return f"{said}; no remat, accumulation or mesh makes it fit: take more devices, a smaller model or a smaller --batch.size"
    return f"{said}; try {changes(run, other)}, with which it needs about {amount(needs(other)['all'])}"


@contextlib.contextmanager
def shortage(sentence: Callable[[], str]) -> Iterator[None]:
    """Raises UserError with that sentence where XLA runs out of memory, and not its own pages."""
    import jax

    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise UserError(sentence()) from error


def parts(memory: Mapping[str, float]) -> str:
    """What the bytes of a device are for."""
    return ", ".join(f"{name} {amount(size)}" for name, size in memory.items() if name != "all" and size)


def amount(size: float) -> str:
    """Bytes as people read them."""
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e6:,.0f} MB"


def _size(run: Run, needs: Needs) -> float:
    """Bytes that a run needs; more than any device has where it does not divide."""
    try:
        return needs(run)["all"]
    except UserError:
        return math.inf


def _shardings(run: Run, devices: int) -> Iterator[Run]:
    """The run as it is; then all devices along fsdp; then more and more of them along tensor."""
    yield run
    for tensor in (1 << n for n in range(devices.bit_length())):
        if devices % (tensor * run.mesh.context) or tensor < run.mesh.tensor:
            continue
        mesh = dataclasses.replace(run.mesh, data=1, fsdp=devices // (tensor * run.mesh.context), tensor=tensor)
        if mesh != run.mesh:
            yield dataclasses.replace(run, mesh=mesh)


def _savings(run: Run) -> Iterator[Run]:
    """The run with more and more of its batch cut up, and of its blocks computed again."""
    batch = run.batch
    for part in (batch.accumulate << n for n in itertools.count()):
        if batch.unit % part:
            return
        cut = dataclasses.replace(batch, accumulate=part)
        for remat in REMAT[REMAT.index(run.model.remat) :]:
            yield dataclasses.replace(run, batch=cut, model=dataclasses.replace(run.model, remat=remat))
