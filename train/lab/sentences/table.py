"""The results of SentEval, of one encoder and of several side by side: one object, a table and a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, cast

import numpy as np

from tfm.options.json_text import read_object
from train import UserError
from train.lab.compare.statistics import mean_and_deviation
from train.lab.sentences.evaluation import MetricResult, SentEvalResult
from train.lab.sentences.suite import TASKS
from train.runs import run_folder
from train.screens.markdown import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS, TABLE, PICTURE, COMPARISON = "results.json", "table.md", "scores.png", "comparison.png"

# The metric of a relatedness task that cosines alone have.
_COSINE = "cosine_spearman"

# Means over tasks: that of accuracies which SentEval's users report, and that of similarity (Gao et al. 2021).
AVERAGES = {
    "transfer": ("accuracy", ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC")),
    "similarity": ("spearman_all", ("STS12", "STS13", "STS14", "STS15", "STS16")),
}


class SentEvalSummary(TypedDict):
    """The results of tasks, and means over some of them; None where one is missing."""

    tasks: dict[str, SentEvalResult]
    averages: dict[str, float | None]


class _SavedSummary(SentEvalSummary):
    """results.json, with the settings of classifiers."""

    classifier: dict[str, object]


def summary(results: Mapping[str, SentEvalResult]) -> SentEvalSummary:
    """Results by task, in the order of the suite, and means over tasks; None where one of the tasks is missing."""
    averages: dict[str, float | None] = {
        name: float(np.mean([results[task]["metrics"][metric]["value"] for task in tasks]))
        if all(task in results for task in tasks)
        else None
        for name, (metric, tasks) in AVERAGES.items()
    }
    ordered = {task.name: results[task.name] for task in TASKS if task.name in results}
    return {"tasks": ordered, "averages": averages}


def score(result: SentEvalResult) -> tuple[str, MetricResult]:
    """The name and the value of the metric that stands for a task."""
    return next(iter(result["metrics"].items()))


def text(results: SentEvalSummary) -> str:
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
    for name, mean in results["averages"].items():
        metric, tasks = AVERAGES[name]
        missing = [task for task in tasks if task not in results["tasks"]]
        shown = f"none without {', '.join(missing)}" if mean is None else f"{mean:.2f}"
        rows.append((f"mean: {name}", metric, shown, "", "", "", "", ""))
    return markdown_table(rows)


def draw(results: SentEvalSummary, path: Path):
    """A bar for the score of every task with its interval, and a dash for a constant guess."""
    from matplotlib.figure import Figure

    names = list(results["tasks"])
    figure = Figure(figsize=(1.5 + 0.7 * len(names), 4), layout="constrained")
    axes = figure.subplots()
    for place, name in enumerate(names):
        result = results["tasks"][name]
        _, value = score(result)
        axes.bar(place, value["value"], color="#9ecae1", width=0.7)
        if value["low"] is not None and value["high"] is not None:
            ends = [[value["value"] - value["low"]], [value["high"] - value["value"]]]
            axes.errorbar(place, value["value"], np.clip(ends, 0, None), color="#08519c", capsize=3)
        if result["constant"]:
            axes.hlines(result["constant"], place - 0.35, place + 0.35, color="black", linestyles="dashed")
    axes.set_ylim(min(0, *axes.get_ylim()), 100)
    _save(figure, names, path)


def compare(names: str, to: str, log):
    """Prints the table of several encoders, and writes it where `to` is a folder.

    names: folders with a results.json, joined by commas, a row each; a folder of such folders is a row of their means.
    Raises UserError for folders that cannot be compared.
    """
    folders_of_rows = [Path(name) for name in names.split(",")]
    rows = {folder.name: _results(folder) for folder in folders_of_rows}
    if len(rows) < len(folders_of_rows):
        raise UserError(f"--compare={names} has two folders of one name, which names its row; rename one")
    _check([(name, result) for name, results in rows.items() for result in results])
    values = {name: _values(results) for name, results in rows.items()}
    shown = rows_text(values)
    if to:
        out = Path(to)
        out.mkdir(parents=True, exist_ok=True)
        run_folder.write(out / TABLE, shown + "\n")
        draw_rows(values, out / "plots" / COMPARISON)
        log.info(f"saved in {out}: {TABLE}, plots/{COMPARISON}")
    print(shown)


def _results(folder: Path) -> list[_SavedSummary]:
    """The results in the folder, or in the folders inside it."""
    files = [folder / RESULTS] if (folder / RESULTS).exists() else sorted(folder.glob(f"*/{RESULTS}"))
    if not files:
        raise UserError(
            f"--compare={folder} holds no {RESULTS}, nor do folders in it; name the --out of finished suites"
        )
    return [_read(file) for file in files]


def _read(file: Path) -> _SavedSummary:
    """The results in a file. Raises UserError where it is damaged, or of another command."""
    try:
        results = read_object(file)
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}); run its suite again, which repeats no finished task") from error
    if not {"classifier", "tasks"} <= results.keys():
        raise UserError(f"{file} is of another command; name the --out of suites of train.sentences")
    return cast(_SavedSummary, results)


def _check(results: Sequence[tuple[str, _SavedSummary]]):
    """Raises UserError for a suite whose protocol or rows are not those of the first."""
    (first, reference), *_ = results
    for name, result in results:
        if result["classifier"] != reference["classifier"]:
            raise UserError(
                f"{name} and {first} were measured by other settings of classifiers; measure one of them again"
            )
        for task in result["tasks"].keys() & reference["tasks"].keys():
            if result["tasks"][task]["data"] != reference["tasks"][task]["data"]:
                raise UserError(f"{name} and {first} have other rows of {task}; measure one of them again")


def _values(results: Sequence[_SavedSummary]) -> dict[str, np.ndarray]:
    """The scores of every task that all results have, one a seed; a correlation of cosines, which nothing trains, has a
    column of its own."""
    tasks = [task.name for task in TASKS if all(task.name in result["tasks"] for result in results)]
    values: dict[str, np.ndarray] = {}
    for task in tasks:
        measured = [result["tasks"][task] for result in results]
        values[task] = np.array([score(result)[1]["value"] for result in measured])
        if _COSINE in measured[0]["metrics"]:
            values[f"{task} cosine"] = np.array([result["metrics"][_COSINE]["value"] for result in measured])
    return values


def rows_text(rows: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """A table in Markdown: a row an encoder, a column a task, the mean of the seeds and their standard deviation."""
    tasks = _tasks(rows)
    cells = [[_cell(values.get(task)) for task in tasks] for values in rows.values()]
    return markdown_table([["encoder", *tasks], *([name, *row] for name, row in zip(rows, cells, strict=True))])


def draw_rows(rows: Mapping[str, Mapping[str, np.ndarray]], path: Path):
    """A column a task, a dot an encoder: the mean of the seeds, with a line from the lowest to the highest."""
    from matplotlib.figure import Figure

    tasks = _tasks(rows)
    figure = Figure(figsize=(2.5 + 0.9 * len(tasks), 4), layout="constrained")
    axes = figure.subplots()
    for place, (name, values) in enumerate(rows.items()):
        places = [
            column + 0.6 * ((place + 0.5) / len(rows) - 0.5) for column, task in enumerate(tasks) if task in values
        ]
        scores = [values[task] for task in tasks if task in values]
        means = np.array([score.mean() for score in scores])
        ends = [means - [score.min() for score in scores], [score.max() for score in scores] - means]
        axes.errorbar(places, means, ends, fmt="o", color=f"C{place}", markersize=5, label=name)
    figure.legend(loc="outside right upper", fontsize=8)
    _save(figure, tasks, path)


def _save(figure: "Figure", columns: Sequence[str], path: Path):
    """Names the columns of a figure of scores, and writes it."""
    (axes,) = figure.axes
    axes.set(ylabel="accuracy or correlation, hundredths", title="SentEval")
    axes.set_xticks(range(len(columns)), columns, rotation=40, ha="right")
    axes.grid(axis="y", alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _tasks(rows: Mapping[str, Mapping[str, np.ndarray]]) -> list[str]:
    """The columns of all rows, in the order of the suite."""
    order = [name for task in TASKS for name in (task.name, f"{task.name} cosine")]
    return [name for name in order if any(name in values for values in rows.values())]


def _cell(values: np.ndarray | None) -> str:
    if values is None:
        return ""
    mean, deviation = mean_and_deviation(values.tolist())
    return f"{mean:.1f} ± {deviation:.1f}" if len(values) > 1 else f"{mean:.1f}"
