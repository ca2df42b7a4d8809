"""The result of a comparison: one object, a table in Markdown, and a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from train.lab.compare.budget import Costs
from train.lab.compare.cells import DONE, RunRecord
from train.lab.compare.statistics import mean_and_deviation, paired
from train.lab.compare.table_rows import TableRow
from train.screens.markdown import markdown_table
from train.tasks.record import Goal

RESULTS, TABLE, PICTURE = "results.json", "table.md", "compare.png"

# What the arrows of a table mean.
_ARROWS: Mapping[Goal, str] = {min: "lower is better", max: "higher is better"}


class PairedDifference(TypedDict):
    """The differences of a row to the first one, as `statistics.Paired` has them."""

    mean: float
    low: float | None
    high: float | None
    agree: int
    n: int


class MetricSummary(TypedDict):
    """A metric of a row: mean and deviation over n seeds, and the difference to the first row."""

    mean: float
    std: float
    n: int
    difference: PairedDifference | None


class _RowValues(TypedDict):
    name: str
    words: list[str]
    params: int
    steps: int
    tokens: int
    flops: int
    metrics: dict[str, MetricSummary]
    cells: dict[str, RunRecord]
    trials: list[RunRecord]


class MeasuredRow(_RowValues, total=False):
    """A row of results.json: what a run of it costs, its metrics, and the records of its runs by seed."""

    seconds_planned: float


class Summary(TypedDict):
    """The rows of results.json, and what a reader must know of them."""

    rows: list[MeasuredRow]
    notes: list[str]


def summary(
    rows: Sequence[TableRow],
    costs: Mapping[str, Costs],
    cells: Mapping[str, Mapping[int, RunRecord]],
    trials: Mapping[str, Sequence[RunRecord]],
) -> Summary:
    """The costs of every row, its cells by seed, all numbers that they reached, and differences to the first row.

    `trials` are the records of the search of a row, the chosen one with `chosen`; none where nothing is tuned.
    """
    values = {row.name: _values(cells[row.name]) for row in rows}
    baseline = values[rows[0].name]
    table: list[MeasuredRow] = []
    for row in rows:
        own, plan = values[row.name], costs[row.name]
        metrics: dict[str, MetricSummary] = {}
        for name, by_seed in own.items():
            mean, deviation = mean_and_deviation(list(by_seed.values()))
            difference = _difference(by_seed, baseline.get(name, {})) if row is not rows[0] else None
            metrics[name] = {"mean": mean, "std": deviation, "n": len(by_seed), "difference": difference}
        entry: MeasuredRow = {
            "name": row.name,
            "words": list(row.words),
            "params": plan.params,
            "steps": plan.steps,
            "tokens": round(plan.tokens * plan.steps),
            "flops": round(plan.flops * plan.steps),
            "metrics": metrics,
            "cells": {str(seed): record for seed, record in cells[row.name].items()},
            "trials": list(trials.get(row.name, ())),
        }
        if plan.seconds:
            entry["seconds_planned"] = plan.seconds * plan.steps
        table.append(entry)
    return {"rows": table, "notes": _notes(table)}


def _difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> PairedDifference | None:
    """The differences to the first row, from values by seed; None without a common seed."""
    pairs = paired(values, baseline)
    if pairs is None:
        return None
    return {"mean": pairs.mean, "low": pairs.low, "high": pairs.high, "agree": pairs.agree, "n": pairs.n}


def _values(cells: Mapping[int, RunRecord]) -> dict[str, dict[int, float]]:
    """Every metric of the runs that are done, by seed; no clock and no sizes, which are not results."""
    values: dict[str, dict[int, float]] = {}
    for seed, record in cells.items():
        for name, value in record.get("metrics", {}).items():
            if name.startswith("eval_"):
                values.setdefault(name, {})[seed] = value
    return values


def _notes(rows: Sequence[MeasuredRow]) -> list[str]:
    """What a reader must know before the numbers are believed."""
    notes = []
    for row in rows[1:]:
        records = [cells for entry in (rows[0], row) for cells in entry["cells"].values() if cells["status"] == DONE]
        if len({tuple(record["data"]) for record in records}) > 1:
            notes.append(
                f"{row['name']} has other data, or another tokenizer, than the first row: losses do not compare"
            )
        if row["tokens"] != rows[0]["tokens"] and row["tokens"] and rows[0]["tokens"]:
            notes.append(
                f"{row['name']} reads {row['tokens'] / rows[0]['tokens']:.3g} times the tokens of the first row"
            )
    for row in rows:
        statuses = [record["status"] for record in row["cells"].values()]
        for status in sorted(set(statuses) - {DONE}):
            notes.append(f"{row['name']}: {statuses.count(status)} of {len(statuses)} runs failed: {status}")
        chosen = [index for index, trial in enumerate(row["trials"]) if trial.get("chosen")]
        if chosen and len(row["trials"]) > 2 and chosen[0] in (0, len(row["trials"]) - 1):
            notes.append(f"{row['name']}: the chosen trial is at the end of what was tried: try further")
    if len(rows[0]["cells"]) < 5:
        notes.append(f"{len(rows[0]['cells'])} seeds are few: intervals are far too narrow")
    return notes


def markdown(result: Summary, metrics: Mapping[str, Goal]) -> str:
    """The table: a line a row, and the notes below. `metrics` are those to show, by name."""
    has_trials = any(row["trials"] for row in result["rows"])
    has_seconds = any("seconds_planned" in row for row in result["rows"])
    header = ["row", "seeds", "parameters", "steps", "tokens", "FLOPs"]
    header += ["seconds, planned"] * has_seconds + ["chosen"] * has_trials
    for name in metrics:
        header += [name, "difference, 95 % interval", "seeds that agree"]
    lines = [header]
    for row in result["rows"]:
        done = sum(record["status"] == DONE for record in row["cells"].values())
        line = [row["name"], f"{done}", f"{row['params']:,}", f"{row['steps']:,}", f"{row['tokens']:,}"]
        line.append(f"{row['flops']:.3g}")
        line += [f"{row.get('seconds_planned', 0):.0f}"] * has_seconds + [_chosen(row)] * has_trials
        for name in metrics:
            line += _cells_of(row, f"eval_{name}")
        lines.append(line)
    better = "; ".join(f"{name}: {_ARROWS[best]}" for name, best in metrics.items())
    notes = [f"- {note}" for note in (better, *result["notes"])]
    trials = [_trial(row, trial, metrics) for row in result["rows"] for trial in row["trials"]]
    return "\n".join([markdown_table(lines), "", *notes, *(["", "Trials:", "", *trials] if trials else [])])


def _cells_of(row: MeasuredRow, name: str) -> list[str]:
    """Mean and deviation, difference and interval, and agreement, as a table shows them."""
    values = row["metrics"].get(name)
    if values is None:
        failed = sorted({record["status"] for record in row["cells"].values()})
        return [", ".join(failed), "", ""]
    mean = f"{values['mean']:.4f}" + (f" ± {values['std']:.4f}" if values["n"] > 1 else "")
    difference = values["difference"]
    if difference is None:
        return [mean, "", ""]
    interval = "" if difference["low"] is None else f" [{difference['low']:+.4f}, {difference['high']:+.4f}]"
    return [mean, f"{difference['mean']:+.4f}{interval}", f"{difference['agree']} of {difference['n']}"]


def _chosen(row: MeasuredRow) -> str:
    return next((trial["name"] for trial in row["trials"] if trial.get("chosen")), "")


def _trial(row: MeasuredRow, trial: RunRecord, metrics: Mapping[str, Goal]) -> str:
    """A line about a trial."""
    name = next(iter(metrics))
    value = trial.get("metrics", {}).get(f"eval_{name}")
    reached = trial["status"] if value is None else f"{name} {value:.4f}"
    return f"- {row['name']}, {trial['name']}: {reached}{' (chosen)' if trial.get('chosen') else ''}"


def draw(result: Summary, metric: str, path: Path):
    """Left the metric of every row, a point a seed and a line at the mean; right the differences to the first row."""
    from matplotlib.figure import Figure

    rows, name = result["rows"], f"eval_{metric}"
    figure = Figure(figsize=(10, 1.4 + 0.45 * len(rows)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for place, row in enumerate(rows):
        points = [record["metrics"][name] for record in row["cells"].values() if name in record.get("metrics", {})]
        if not points:
            failed = ", ".join(sorted({record["status"] for record in row["cells"].values()}))
            left.text(0.02, place, failed, transform=left.get_yaxis_transform(), va="center", color="#c0392b")
            continue
        left.plot(points, [place] * len(points), "o", color="#4292c6", alpha=0.6, markersize=5)
        left.plot([row["metrics"][name]["mean"]] * 2, [place - 0.3, place + 0.3], color="#08306b", linewidth=2)
        difference = row["metrics"][name]["difference"]
        if difference is None:
            continue
        right.plot(difference["mean"], place, "o", color="#08306b")
        if difference["low"] is not None and difference["high"] is not None:
            right.plot([difference["low"], difference["high"]], [place] * 2, color="#08306b", linewidth=1.5)
    left.set(xlabel=metric, yticks=range(len(rows)), yticklabels=[row["name"] for row in rows])
    right.axvline(0, color="0.5", linestyle="--", linewidth=1)
    right.set(xlabel=f"{metric} - {metric} of {rows[0]['name']}, 95 % interval")
    left.set_ylim(len(rows) - 0.5, -0.5)
    for axes in (left, right):
        axes.locator_params(axis="x", nbins=6)
        axes.grid(axis="x", alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
