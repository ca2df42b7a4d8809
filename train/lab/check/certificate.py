"""The probes in their order, the table that they fill, and the certificate."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypedDict

from train.lab.check import data, model, training, widths
from train.lab.check.result import Result
from train.lab.check.subject import Subject
from train.runs import run_folder
from train.training import startup

Probe = Callable[[Subject], Result]

# Every probe, in the order of the table. Its name is that of its function, what it claims the function's first line.
PROBES: tuple[Probe, ...] = (*data.PROBES, *model.PROBES, *training.PROBES, widths.activations_of_widths)


class ProbeOutcome(NamedTuple):
    """A probe by its name and its claim, its result, and the seconds that it took."""

    name: str
    claim: str
    result: Result
    seconds: float


def outcomes(subject: Subject, probes: Sequence[Probe] = PROBES) -> Iterator[ProbeOutcome]:
    """Runs the probes, one after the other."""
    for probe in probes:
        began = time.perf_counter()
        result = probe(subject)
        claim = " ".join((probe.__doc__ or "").partition("\n\n")[0].split())
        yield ProbeOutcome(probe.__name__.replace("_", " "), claim, result, time.perf_counter() - began)


HEADING = f"{'probe':<27} {'measured':>9} {'tolerance':>9}  {'':<14}  what was measured"


def line(outcome: ProbeOutcome) -> str:
    """A line of the table."""
    measured, tolerance, detail = outcome.result
    numbers = " ".join(f"{'' if value is None else f'{value:.3g}':>9}" for value in (measured, tolerance))
    return f"{outcome.name:<27} {numbers}  {outcome.result.status:<14}  {detail}"


def certificate(subject: Subject, results: Sequence[ProbeOutcome]) -> dict[str, object]:
    """The object that check.json holds: every probe, and what run.json says of configuration, data and devices."""
    probes = [
        {
            "name": outcome.name,
            "claim": outcome.claim,
            "status": outcome.result.status,
            **outcome.result._asdict(),
            "measured": _finite(outcome.result.measured),
            "seconds": round(outcome.seconds, 2),
        }
        for outcome in results
    ]
    facts = startup.facts(subject.job, subject.corpus)
    return {**summary(results), "probes": probes, **run_folder.describe(subject.job.run, facts)}


class CheckSummary(TypedDict):
    """Whether nothing fails, the names of what fails, and what was measured."""

    passed: bool
    failed: list[str]
    measured: dict[str, float | str | None]


def summary(results: Sequence[ProbeOutcome]) -> CheckSummary:
    """The verdict on a run."""
    failed = [outcome.name for outcome in results if outcome.result.status == "fail"]
    measured = {outcome.name: _finite(outcome.result.measured) for outcome in results}
    return {"passed": not failed, "failed": failed, "measured": measured}


def _finite(value: float | None) -> float | str | None:
    """A number that JSON has, or the name of one that it lacks."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
