"""The results of a suite as one object, a table and a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np

from train.lab.glue.runner import MeanAndDeviation, RunScores, TaskResult, mean_and_deviation
from train.lab.glue.suites import SUITES, GlueTask
from train.screens.markdown import markdown_table

RESULTS = "results.json"
PICTURE = "scores.png"


class Statistics(TypedDict):
    """Means and deviations over the seeds of a task: of its score, and of its metrics by part and name."""

    score: MeanAndDeviation
    metrics: dict[str, dict[str, MeanAndDeviation]]


class TaskSummary(TaskResult, Statistics):
    """The result of a task with its statistics."""


class SuiteResult(TypedDict):
    """results.json: the tasks, those without data, those left out, and the average where none is missing."""

    suite: str
    tasks: dict[str, TaskSummary]
    absent: list[str]
    not_chosen: list[str]
    average: MeanAndDeviation | None


def summary(suite: str, tasks: Mapping[str, TaskResult], absent: Sequence[str]) -> SuiteResult:
    """Results of `Runner.run` by task -> the same with means and deviations over seeds, and of the suite.

    `average` is the mean of the scores of all tasks, and its deviation that of the averages of the seeds; it is None
    where a task is `absent`, or `not_chosen`.
    """
    missing = [task.name for task in SUITES[suite] if task.name not in tasks]
    averages = list(zip(*([run["score"] for run in result["runs"]] for result in tasks.values()), strict=True))
    return {
        "suite": suite,
        "tasks": {name: {**result, **_statistics(result["runs"])} for name, result in tasks.items()},
        "absent": list(absent),
        "not_chosen": [name for name in missing if name not in absent],
        "average": None if missing else mean_and_deviation([float(np.mean(scores)) for scores in averages]),
    }


def _statistics(runs: Sequence[RunScores]) -> Statistics:
    """`score`, and `metrics` by part and name, as mean and deviation over runs."""
    parts = runs[0]["metrics"]
    values = {
        part: {metric: mean_and_deviation([run["metrics"][part][metric] for run in runs]) for metric in names}
        for part, names in parts.items()
    }
    return {"score": mean_and_deviation([run["score"] for run in runs]), "metrics": values}


def text(results: SuiteResult) -> str:
    """A table in Markdown: a row a task, in hundredths, on the validation sets."""
    rows: list[tuple[str, ...]] = [("task", "score", "constant guess", "metrics", "train", "validation", "setting")]
    for task in SUITES[results["suite"]]:
        if task.name in results["tasks"]:
            rows.append(_row(task, results["tasks"][task.name]))
        else:
            reason = "absent" if task.name in results["absent"] else "not chosen"
            rows.append((task.name, "-", "-", reason, "-", "-", "-"))
    average = results["average"]
    label = f"{results['suite'].upper()} average"
    missing = len(results["absent"] + results["not_chosen"])
    note = "" if average else f"none without all tasks; {missing} missing"
    rows.append((label, _shown(average) if average else "-", "", note, "", "", ""))
    return markdown_table(rows)


def _row(task: GlueTask, result: TaskSummary) -> tuple[str, ...]:
    """The cells of a task."""
    metrics = []
    for part, values in result["metrics"].items():
        prefix = "" if part == task.name else f"{part} "
        metrics += [f"{prefix}{name} {_shown(value)}" for name, value in values.items()]
    seeds = len(result["runs"])
    return (
        task.name,
        _shown(result["score"]),
        f"{100 * result['majority']:.1f}",
        "; ".join(metrics),
        f"{result['train']:,}",
        f"{sum(result['dev'][part.name] for part in task.parts if part.counts):,}",
        f"{result['setting']}, {seeds} seed{'s' * (seeds > 1)}",
    )


def _shown(value: MeanAndDeviation) -> str:
    """Mean and deviation in hundredths."""
    deviation = f" ± {100 * value['std']:.1f}" if value["std"] else ""
    return f"{100 * value['mean']:.1f}{deviation}"


def draw(results: SuiteResult, path: Path):
    """A bar for the score of every task, with its seeds as points and a constant guess as a dash."""
    from matplotlib.figure import Figure

    names = list(results["tasks"])
    figure = Figure(figsize=(1.5 + 0.9 * len(names), 4), layout="constrained")
    axes = figure.subplots()
    for place, name in enumerate(names):
        result = results["tasks"][name]
        axes.bar(place, 100 * result["score"]["mean"], color="#9ecae1", width=0.7)
        points = [100 * run["score"] for run in result["runs"]]
        axes.plot([place] * len(points), points, "o", color="#08519c", markersize=3.5)
        axes.hlines(
            100 * result["majority"], place - 0.35, place + 0.35, color="black", linestyles="dashed", linewidth=1
        )
    average = results["average"]
    title = f"average {_shown(average)}" if average else "no average: tasks are missing"
    axes.set(ylabel="score on the validation set", title=f"{results['suite']}: {title}")
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_ylim(min(0, *axes.get_ylim()), 100)
    axes.grid(axis="y", alpha=0.3)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=120)
