"""Encoders side by side: the results of several suites as one table and one picture."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfm.config.json_text import read_object
from train import UserError
from train.reporting import markdown
from train.runs import folder as folders
from train.sentences.suite import TASKS
from train.sentences.table import RESULTS, TABLE, score

PICTURE = "comparison.png"

# The metric of a relatedness task that cosines alone have.
_COSINE = "cosine_spearman"


@dataclasses.dataclass(frozen=True)
class Options:
    """What to compare.

    compare: folders with a results.json, joined by commas, a row each; a folder of such folders, one a seed, is a row
        of their means
    out: a folder for table.md and plots/comparison.png; by default the table is printed alone
    """

    compare: str = ""
    out: str = ""

    def __post_init__(self):
        if not all(self.compare.split(",")):
            raise ValueError("compare=RESULTS,RESULTS must name the --out of suites, with commas between")


def run(options: Options, log):
    """Prints the table of all rows, and writes it. Raises UserError for folders that cannot be compared."""
    rows = {folder.name: _results(folder) for folder in map(Path, options.compare.split(","))}
    _check([(name, result) for name, results in rows.items() for result in results])
    values = {name: _values(results) for name, results in rows.items()}
    shown = text(values)
    if options.out:
        out = Path(options.out)
        out.mkdir(parents=True, exist_ok=True)
        folders.write(out / TABLE, shown + "\n")
        draw(values, out / "plots" / PICTURE)
        log.info(f"saved in {out}: {TABLE}, plots/{PICTURE}")
    print(shown)


def _results(folder: Path) -> list[Mapping[str, Any]]:
    """The results in the folder, or in the folders inside it."""
    files = [folder / RESULTS] if (folder / RESULTS).exists() else sorted(folder.glob(f"*/{RESULTS}"))
    if not files:
        raise UserError(
            f"--compare={folder} holds no {RESULTS}, nor do folders in it; name the --out of finished suites"
        )
    try:
        return [read_object(file) for file in files]
    except ValueError as error:
        raise UserError(
            f"{folder} is damaged ({error}); run its suite again, which repeats no finished task"
        ) from error


def _check(results: Sequence[tuple[str, Mapping[str, Any]]]):
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


def _values(results: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
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


def text(rows: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """A table in Markdown: a row an encoder, a column a task, the mean of the seeds and their standard deviation."""
    tasks = _tasks(rows)
    cells = [[_cell(values.get(task)) for task in tasks] for values in rows.values()]
    return markdown.table([["encoder", *tasks], *([name, *row] for name, row in zip(rows, cells, strict=True))])


def draw(rows: Mapping[str, Mapping[str, np.ndarray]], path: Path):
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
    axes.set(ylabel="accuracy or correlation, hundredths", title="SentEval")
    axes.set_xticks(range(len(tasks)), tasks, rotation=40, ha="right")
    axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside right upper", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def _tasks(rows: Mapping[str, Mapping[str, np.ndarray]]) -> list[str]:
    """The columns of all rows, in the order of the suite."""
    order = [name for task in TASKS for name in (task.name, f"{task.name} cosine")]
    return [name for name in order if any(name in values for values in rows.values())]


def _cell(values: np.ndarray | None) -> str:
    if values is None:
        return ""
    return f"{values.mean():.1f}" + (f" ± {values.std(ddof=1):.1f}" if len(values) > 1 else "")
