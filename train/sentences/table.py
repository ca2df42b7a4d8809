"""The results of SentEval as one object, a table and a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from train.reporting import markdown
from train.sentences.suite import TASKS

RESULTS, TABLE, PICTURE = "results.json", "table.md", "scores.png"

# Means over tasks: that of accuracies which SentEval's users report, and that of similarity (Gao et al. 2021).
AVERAGES = {
    "transfer": ("accuracy", ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")),
    "similarity": ("spearman_all", ("STS12", "STS13", "STS14", "STS15", "STS16")),
}


def summary(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Results by task, in the order of the suite, and means over tasks; None where one of the tasks is missing."""
    averages = {
        name: float(np.mean([results[task]["metrics"][metric]["value"] for task in tasks]))
        if all(task in results for task in tasks)
        else None
        for name, (metric, tasks) in AVERAGES.items()
    }
    ordered = {task.name: dict(results[task.name]) for task in TASKS if task.name in results}
    return {"tasks": ordered, "averages": averages}


def score(result: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The name and the value of the metric that stands for a task."""
    return next(iter(result["metrics"].items()))


def text(results: Mapping[str, Any]) -> str:
    """A table in Markdown, a row a task, in hundredths."""
    rows: list[Sequence[str]] = [("task", "metric", "score", "95 % interval", "constant guess", "further", "rows", "s")]
    for name, result in results["tasks"].items():
        metric, value = score(result)
        further = [f"{label} {entry['value']:.2f}" for label, entry in result["metrics"].items() if label != metric]
        note = f" ({result['note']})" if result["note"] else ""
        rows.append(
            (
                name,
                metric,
                f"{value['value']:.2f}",
                "" if value["low"] is None else f"{value['low']:.1f} to {value['high']:.1f}",
                f"{result['constant']:.1f}" if result["constant"] else "",
                "; ".join(further[:4]),
                " + ".join(f"{count:,}" for count in result["rows"].values()) + note,
                f"{result['seconds']:.0f}",
            )
        )
    for name, value in results["averages"].items():
        metric, tasks = AVERAGES[name]
        missing = [task for task in tasks if task not in results["tasks"]]
        shown = f"none without {', '.join(missing)}" if value is None else f"{value:.2f}"
        rows.append((f"mean: {name}", metric, shown, "", "", "", "", ""))
    return markdown.table(rows)


def draw(results: Mapping[str, Any], path: Path):
    """A bar for the score of every task with its interval, and a dash for a constant guess."""
    from matplotlib.figure import Figure

    names = list(results["tasks"])
    figure = Figure(figsize=(1.5 + 0.7 * len(names), 4), layout="constrained")
    axes = figure.subplots()
    for place, name in enumerate(names):
        result = results["tasks"][name]
        _, value = score(result)
        axes.bar(place, value["value"], color="#9ecae1", width=0.7)
        if value["low"] is not None:
            ends = [[value["value"] - value["low"]], [value["high"] - value["value"]]]
            axes.errorbar(place, value["value"], np.clip(ends, 0, None), color="#08519c", capsize=3)
        if result["constant"]:
            axes.hlines(result["constant"], place - 0.35, place + 0.35, color="black", linestyles="dashed")
    axes.set(ylabel="accuracy or correlation, hundredths", title="SentEval")
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
    axes.set_ylim(min(0, *axes.get_ylim()), 100)
    axes.grid(axis="y", alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
