"""Phases of a run: recipes in files, and the settings of every step.

    [[phase]]
    tokens = 4_000_000          # or steps, or share = 0.9 of --steps; the last phase may take all that are left
    batch.length = 64
    batch.size = [16, 32, 64]   # sizes of equally many steps
    task.rate = 0.3

The class of a union is its `name`: `model.mixer.pattern.name = "sliding"`.

A phase goes on with the settings of the phase before it, the first one with those of the flags. Only the first phase
warms its rate up, unless another one says so.
"""

import contextlib
import functools
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tfm.options.dotted import flatten
from train import UserError
from train.settings import flags
from train.settings.phases import LENGTHS, PhaseSettings
from train.settings.schema import Run
from train.tasks.table import AnyRun

# What a phase may change; of a model, what has no parameters.
MAY_CHANGE = (
    *("batch.length", "batch.size", "batch.tokens", "batch.accumulate", "task.", "model."),
    *("data.mixture", "data.temperature", "data.max_epochs"),
    *("optim.rate", "optim.warmup", "optim.schedule", "optim.cooldown", "optim.final"),
)

_EXAMPLE = "[[phase]] tables, each with steps, tokens or share and what it changes, such as batch.length = 512"


class StepRange(NamedTuple):
    """Steps with the same settings, counted from 0.

    phase: the number of their phase, from 1
    first, stop: the first step, and the one behind the last
    begins, ends: the same of the phase, over which its rate goes
    run: the settings
    """

    phase: int
    first: int
    stop: int
    begins: int
    ends: int
    run: Run


@functools.lru_cache(maxsize=64)
def step_ranges(run: Run) -> tuple[StepRange, ...]:
    """The steps of a run by their settings; without phases, one stretch. Raises UserError for phases that do not fit
    the run."""
    if not run.phases:
        return (StepRange(1, 0, run.steps, 0, run.steps, run),)
    ranges: list[StepRange] = []
    begins = 0
    for phase_number, part in enumerate(_parts(run), start=1):
        ends = run.steps if part.steps is None else begins + part.steps
        if not begins < ends <= run.steps:
            raise UserError(
                f"phase {phase_number}, steps {begins + 1:,} to {max(ends, begins + 1):,}, does not fit --steps="
                f"{run.steps}; shorten the phases, or leave --steps out where each has a length"
            )
        borders = [begins + (ends - begins) * index // len(part.sizes) for index in range(len(part.sizes) + 1)]
        for first, stop, of_size in zip(borders, borders[1:], part.sizes, strict=False):
            ranges += [StepRange(phase_number, first, stop, begins, ends, of_size)] if stop > first else []
        begins = ends
    if begins < run.steps:
        raise UserError(f"the phases end at step {begins:,}, before --steps={run.steps}; leave out --steps")
    if run.eval.patience is not None and len({part.run.model for part in ranges}) > 1:
        raise UserError(
            f"--eval.patience={run.eval.patience} keeps the best weights of any phase, and the model of these phases "
            "changes; leave it out"
        )
    return tuple(ranges)


def step_range_of(run: Run, step: int) -> StepRange:
    """The stretch of a step, from 0; behind the last step, the last stretch."""
    parts = step_ranges(run)
    return next((part for part in parts if step < part.stop), parts[-1])


def has_own_rates(run: Run) -> bool:
    """Whether the rate has a schedule in each phase, and not one over all steps."""
    return any(name.startswith("optim.") for phase in run.phases for name in _texts(phase))


def with_steps(run: Run) -> Run:
    """The run with the steps of its phases, where none is a share. Raises UserError as `step_ranges` does."""
    if any(phase.share is not None for phase in run.phases):
        return run
    lengths = [part.steps for part in _parts(run)]
    total = sum(steps for steps in lengths if steps is not None)
    return run if not run.phases or None in lengths else flags.build(AnyRun, flatten(run), {"steps": total})


class _Part(NamedTuple):
    """The settings of a phase, once for each size of its batches, and its steps; None: all that are left."""

    sizes: tuple[Run, ...]
    steps: int | None


@functools.lru_cache(maxsize=64)
def _parts(run: Run) -> tuple[_Part, ...]:
    """The phases of a run."""
    if run.phases and run.task.memory is not None:
        raise UserError("phases cannot change rows that continue one another; leave out --task.memory, or --phases")
    parts: list[_Part] = []
    current: Run = flags.build(AnyRun, flatten(run), {"phases": 0})
    for phase_number, phase in enumerate(run.phases, start=1):
        with _named(f"phase {phase_number}"):
            parts.append(_part(current, phase, is_first=phase_number == 1))
            if parts[-1].steps is None and phase_number < len(run.phases):
                raise UserError("it has no length; say steps, tokens or share")
        current = parts[-1].sizes[-1]
    return tuple(parts)


def _part(before: Run, phase: PhaseSettings, is_first: bool) -> _Part:
    """A phase behind one with these settings."""
    texts = _texts(phase)
    for name, (flag, _) in texts.items():
        if not name.startswith(MAY_CHANGE) or name == "task.name":
            names = ", ".join(name.removesuffix(".") for name in MAY_CHANGE)
            raise UserError(f"{flag} is the same in all phases; a phase may change {names}")
    sizes = texts.pop("batch.size", None)
    warmup = {} if is_first else {"optim.warmup": 0.0}
    values = [{} if sizes is None else {"batch.size": sizes._replace(text=size)} for size in _sizes(sizes)]
    runs = tuple(flags.build(AnyRun, flatten(before), {**warmup, **texts, **value}) for value in values)
    if phase.share is not None:
        return _Part(runs, max(1, int(phase.share * before.steps)))
    if phase.tokens is None:
        return _Part(runs, phase.steps)
    tokens = sum(run.batch.tokens or run.batch.size * run.row_tokens for run in runs)
    return _Part(runs, -(-phase.tokens * len(runs) // tokens))


def _sizes(text: flags.Text | None) -> list[str | None]:
    """The sizes of batches that a phase has one after the other."""
    return [None] if text is None or text.text is None else [*text.text.split(",")]


def _texts(phase: PhaseSettings) -> dict[str, flags.Text]:
    """What a phase changes, by dotted name."""
    try:
        words = shlex.split(phase.changes)
    except ValueError as error:
        raise UserError(f"changes={phase.changes} has a quotation mark without its partner") from error
    return flags.parse([f"--{word}" for word in words])


def read_recipe(path: str) -> dict[str, object]:
    """The values of `phases` that a file says. Raises UserError for one that says something else."""
    tables = _tables(path)
    values: dict[str, object] = {"phases": len(tables)}
    for index, table in enumerate(tables):
        with _named(f"{path}: phase {index + 1}"):
            changes = {name.replace("-", "_"): _text(name, value) for name, value in _flat(table).items()}
            lengths = {name: changes.pop(name, None) for name in LENGTHS}
            for name, text in lengths.items():
                kind = float if name == "share" else int
                value = None if text is None else flags.read(name, flags.Text(name, text), kind)
                values[f"phases.{index}.{name}"] = value
        values[f"phases.{index}.changes"] = shlex.join(f"{name}={text}" for name, text in changes.items())
    return values


def _tables(path: str) -> list[Mapping[str, object]]:
    """The phases of a file in TOML."""
    import tomllib

    try:
        with Path(path).open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise UserError(f"--phases={path} cannot be read: {error.strerror}; name a file of {_EXAMPLE}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no TOML: {error}") from error
    if unknown := sorted(content.keys() - {"phase"}):
        raise UserError(f"{path} has {unknown[0]} outside of a phase; it may have {_EXAMPLE}")
    tables = content.get("phase", [])
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise UserError(f"{path} has no phases; it must have {_EXAMPLE}")
    return tables


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """The values of a table by dotted names."""
    values: dict[str, object] = {}
    for name, value in table.items():
        values |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return values


def _text(name: str, value: object) -> str:
    """A value of TOML as a flag has it; a list with commas."""
    if isinstance(value, list) and name == "batch.size" and value:
        return ",".join(_text(name, size) for size in value)
    if not isinstance(value, bool | int | float | str):
        raise UserError(f"{name} must be a number, a text, true or false")
    return flags.show(value)


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Errors that begin with the name of what they are about."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{name}: {error}") from error
