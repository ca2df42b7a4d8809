"""What to change if a run does not fit into the memory of its devices."""

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping

from tfm.config.model import Config
from tfm.options.choices import choices_of
from tfm.options.dotted import flatten
from train import OutOfMemoryError, UserError
from train.screens.console import human_bytes
from train.settings import flags
from train.settings.schema import Run

# What the backward pass recomputes: from left to right less memory and more time.
REMAT = tuple(name for name in ("none", "dots", "block", "offload") if name in choices_of(Config, "remat"))

# Bytes that a run needs on a device, by purpose and "all". Raises UserError if the run does not divide over them.
Needs = Callable[[Run], Mapping[str, float]]


@contextlib.contextmanager
def explain_oom(explanation: Callable[[], str]) -> Iterator[None]:
    """Raises UserError with that explanation when XLA runs out of memory, instead of XLA's own pages of text."""
    import jax

    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise OutOfMemoryError(explanation()) from error


def advise(run: Run, devices: int, needs: Needs, capacity: float | None) -> str:
    """One or two sentences for a run that ran out of memory; `capacity` in bytes of a device, None if unknown.

    The run needs more than was estimated, or it would have fitted. So the advised run needs at least a fifth less.
    """
    needs = functools.cache(needs)
    memory = needs(run)
    limit = f" that has {human_bytes(capacity)}" if capacity else ""
    problem = (
        f"out of memory: the step needs about {human_bytes(memory['all'])} on a device{limit} ({breakdown(memory)})"
    )
    target = min(capacity or memory["all"], 0.8 * memory["all"])
    smaller = next(first_that_fits(run, devices, needs, target), None)
    if smaller is None:
        return (
            f"{problem}; no remat, accumulation or mesh makes it fit: "
            "take more devices, a smaller model or a smaller --batch.size"
        )
    size = human_bytes(needs(smaller)["all"])
    return f"{problem}; try {changed_flags(run, smaller)}, with which it needs about {size}"


def first_that_fits(run: Run, devices: int, needs: Needs, capacity: float) -> Iterator[Run]:
    """The runs that need at most `capacity` bytes with other remat, accumulation or mesh, the nearest first.

    Remat is tried first, then more parts of a batch, then parameters sharded over more devices, then layers.
    """
    size = functools.cache(lambda candidate: _size(candidate, needs))
    for sharded in _shardings(run, devices):
        candidates = list(_savings(sharded))
        finite = (size(candidate) for candidate in reversed(candidates) if size(candidate) < math.inf)
        if next(finite, math.inf) <= capacity:  # the last one that divides needs the least
            yield from (candidate for candidate in candidates if candidate != run and size(candidate) <= capacity)


def changed_flags(before: Run, after: Run) -> str:
    """The flags that turn one run into another."""
    old = flatten(before)
    changed = {name: value for name, value in flatten(after).items() if value != old[name]}
    return " ".join(f"--{name.replace('_', '-')}={flags.show(value)}" for name, value in changed.items())


def breakdown(memory: Mapping[str, float]) -> str:
    """The bytes of a device by purpose: parameters 3 MB, gradients 3 MB."""
    return ", ".join(f"{name} {human_bytes(size)}" for name, size in memory.items() if name != "all" and size)


def _size(run: Run, needs: Needs) -> float:
    """Bytes that a run needs; infinity if it does not divide over its devices."""
    try:
        return needs(run)["all"]
    except UserError:
        return math.inf


def _shardings(run: Run, devices: int) -> Iterator[Run]:
    """The run as it is; then with all devices along fsdp; then with more and more of them along tensor."""
    yield run
    for tensor in (1 << n for n in range(devices.bit_length())):
        if devices % (tensor * run.mesh.context) or tensor < run.mesh.tensor:
            continue
        mesh = dataclasses.replace(run.mesh, data=1, fsdp=devices // (tensor * run.mesh.context), tensor=tensor)
        if mesh != run.mesh:
            yield dataclasses.replace(run, mesh=mesh)


def _savings(run: Run) -> Iterator[Run]:
    """The run with its batch in more and more parts, and with more and more recomputed."""
    for accumulate in (run.batch.accumulate << n for n in itertools.count()):
        if run.batch.unit % accumulate:
            return
        batch = dataclasses.replace(run.batch, accumulate=accumulate)
        for remat in REMAT[REMAT.index(run.model.remat) :]:
            yield dataclasses.replace(run, batch=batch, model=dataclasses.replace(run.model, remat=remat))
