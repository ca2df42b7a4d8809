"""What differs between two runs, and where their losses part."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple, cast

from train import UserError
from train.runs.metrics_lines import read_lines
from train.runs.run_folder import METRICS, RunFolder

# Values of a configuration that say where and how far a run went, not what it is.
_OF_THE_START = ("out", "resume", "stop_at")

Pair = tuple[object, object]


class Parting(NamedTuple):
    """Where a metric of two runs parts, in the steps that both have logged.

    shared: how many steps these are
    equal_until: the last step up to which all values are equal, bit for bit; None if the first ones differ
    differs_at: the first step with another value, and both values; None if there is none
    parts_at: the first step at which values are further apart than the tolerance, and both values; None likewise
    last: the last shared step, and both values
    """

    shared: int
    equal_until: int | None
    differs_at: tuple[int, float, float] | None
    parts_at: tuple[int, float, float] | None
    last: tuple[int, float, float] | None


@dataclasses.dataclass(frozen=True)
class Difference:
    """Two runs: `sections` has the values that differ, by section of run.json and dotted name; `losses` by split."""

    sections: dict[str, dict[str, Pair]]
    losses: dict[str, Parting]


def difference(first: RunFolder, second: RunFolder, tolerance: float) -> Difference:
    """Compares two runs; losses part where one is more than 1 + `tolerance` times the other.

    Raises UserError for a folder that is no run, or has no metrics.
    """
    values = (_configuration(first), _configuration(second))
    before, after = ({**folder.surroundings, "config": {}} for folder in (first, second))
    sections = {"configuration": differing(*values)}
    for name in dict.fromkeys((*before, *after)):
        sections[name] = differing(_flat(name, before.get(name)), _flat(name, after.get(name)))
    lines = [list(_metrics(folder)) for folder in (first, second)]
    splits = [split for split in ("train", "eval") if all(any(x["split"] == split for x in part) for part in lines)]
    losses = {split: parting(_by_step(lines[0], split), _by_step(lines[1], split), tolerance) for split in splits}
    return Difference({name: pairs for name, pairs in sections.items() if pairs}, losses)


def differing(first: Mapping[str, object], second: Mapping[str, object]) -> dict[str, Pair]:
    """The names with another value, or with none on one side, and both values (None for none)."""
    names = dict.fromkeys((*first, *second))
    return {name: (first.get(name), second.get(name)) for name in names if first.get(name) != second.get(name)}


def parting(first: Mapping[int, float], second: Mapping[int, float], tolerance: float) -> Parting:
    """Where values by step part."""
    steps = sorted(first.keys() & second.keys())
    pairs = [(step, first[step], second[step]) for step in steps]
    differs_at = next((pair for pair in pairs if pair[1] != pair[2]), None)
    equal = [step for step in steps if differs_at is None or step < differs_at[0]]
    parts_at = next((pair for pair in pairs if _are_apart(pair[1], pair[2], tolerance)), None)
    return Parting(len(steps), equal[-1] if equal else None, differs_at, parts_at, pairs[-1] if pairs else None)


def _are_apart(first: float, second: float, tolerance: float) -> bool:
    return abs(first - second) > tolerance * min(abs(first), abs(second))


def _configuration(folder: RunFolder) -> dict[str, object]:
    return {name: value for name, value in folder.values.items() if name not in _OF_THE_START}


def _flat(name: str, section: object) -> dict[str, object]:
    """A section of run.json by names; a plain value by its own name."""
    return dict(section) if isinstance(section, Mapping) else {name: section}


def _metrics(folder: RunFolder) -> Iterable[Mapping[str, object]]:
    path = folder.path / METRICS
    if not path.is_file():
        raise UserError(f"{folder.path} has no {METRICS}, so nothing is known of its losses; name a run that has begun")
    return read_lines(path)


def _by_step(lines: Iterable[Mapping[str, object]], split: str) -> dict[int, float]:
    """The loss by step."""
    lines_of_split = (line for line in lines if line["split"] == split)
    losses = ((cast(int, line["step"]), line.get("loss")) for line in lines_of_split)
    return {step: loss for step, loss in losses if isinstance(loss, int | float)}
