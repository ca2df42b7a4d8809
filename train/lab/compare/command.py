"""Runs side by side, compared fairly: `python -m train.compare --vary=FIELD=A,B --seeds=5 --out=DIR [flags]`."""

import dataclasses
import functools
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum
from tfm.options.errors import suggest
from train import UserError, exit_code
from train.lab.compare import table_rows
from train.main import train
from train.runs import run_folder
from train.settings import flags

if TYPE_CHECKING:
    from train.lab.compare.budget import Costs
    from train.lab.compare.cells import Cells, RunRecord
    from train.tasks.record import Goal

USAGE = """usage: python -m train.compare --out=DIR --vary=FIELD=A,B [--vary=...] [--seeds=N] [--tune=FIELD=A,B] [flags]
       python -m train.compare --out=DIR --run='NAME: flags' --run='NAME: flags' [--seeds=N] ... [flags]

Trains every row (each combination of --vary, or each --run) with the seeds 0, 1, ...: the same data in the same order.
The other flags are those of train.main, for all rows.
Prints a table in Markdown: mean and deviation, and the difference to the first row, seed by seed, with a bootstrap
interval. --tune tries values for every row with a seed of its own, by the first metric, and reports them all. Each run
is a folder of train.main in DIR; the same command goes on after an interruption. Flags of its own:"""

# The flags that may be repeated.
_REPEATED = ("vary", "run", "tune")

# Trials have a seed that no row of the table has.
TRIAL_SEED = 1000


@dataclasses.dataclass(frozen=True)
class CompareOptions:
    """How to compare.

    out: the folder of all runs; finished ones in it are not repeated
    seeds: runs of every row, with the seeds 0, 1, ...
    budget: steps | flops | seconds: what every row gets as much of as the first one
    metric: metrics of the task, joined by commas; the first one decides --tune, and is drawn
    keep: all | none: whose checkpoints stay when a run is finished
    """

    out: str = ""
    seeds: int = 5
    budget: Literal["steps", "flops", "seconds"] = "steps"
    metric: str = "loss"
    keep: Literal["all", "none"] = "all"

    def __post_init__(self):
        check_fields(self)
        if not self.out:
            raise ValueError("out=DIR must name the folder of the runs")
        check_minimum(self, seeds=1)
        check_maximum(self, "each is a training of its own", seeds=TRIAL_SEED)


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(compare, argv)


def compare(argv):
    """Trains what is not trained yet, and prints the table."""
    if flags.print_help(CompareOptions, USAGE, argv):
        return
    repeated, words = _split(argv)
    own, shared = flags.split_argv(words, [field.name for field in dataclasses.fields(CompareOptions)])
    options = flags.build(CompareOptions, flags.parse(own))
    if repeated["vary"] and repeated["run"]:
        raise UserError("--vary makes a grid, and --run a list; leave one of them out")
    rows = table_rows.named(repeated["run"]) if repeated["run"] else table_rows.grid(repeated["vary"])
    trials = table_rows.grid(repeated["tune"], "tune") if repeated["tune"] else []
    table_rows.check(rows, shared, trials)

    from train.lab import suite
    from train.lab.compare import budget, cells, table
    from train.screens.console import Log

    log, out = Log(), Path(options.out)
    fixed = {"budget": options.budget, "tune": sorted(repeated["tune"]), "flags": sorted(shared)}
    metrics = _metrics(options.metric, rows, trials, shared)
    is_new = not out.exists()
    suite.check_settings(out, fixed)
    try:
        costs = budget.plan(rows, shared, options.budget, out, log)
    except UserError:
        if is_new:
            shutil.rmtree(out)
        raise
    work = Comparison(out, shared, costs, cells.Cells(train, log.info, options.keep == "all"))
    searched = {row.name: work.search(row, trials, *next(iter(metrics.items()))) for row in rows} if trials else {}
    by_row: dict[str, dict[int, cells.RunRecord]] = {row.name: {} for row in rows}
    for seed in range(options.seeds):
        for row in rows:
            by_row[row.name][seed] = work.run(row, seed, _chosen(searched.get(row.name, ())))
    result = table.summary(rows, costs, by_row, searched)
    text = table.markdown(result, metrics)
    run_folder.write_json(out / table.RESULTS, fixed | {"seeds": options.seeds, "metric": options.metric, **result})
    run_folder.write(out / table.TABLE, text + "\n")
    table.draw(result, next(iter(metrics)), out / "plots" / table.PICTURE)
    print(text)
    log.info(f"saved in {out}: {table.RESULTS}, {table.TABLE}, plots/{table.PICTURE}, a folder for every row")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The runs of a comparison: where they are, the words that they share, what they cost, and who runs them."""

    out: Path
    shared: Sequence[str]
    costs: "Mapping[str, Costs]"
    cells: "Cells"

    def run(self, row: table_rows.TableRow, seed: int, words: Sequence[str] = ()) -> "RunRecord":
        """The record of a row's run with a seed, and with further words that a search has chosen."""
        return self._finish(self.out / row.folder / f"seed-{seed}", row, seed, words)

    def search(
        self, row: table_rows.TableRow, trials: Sequence[table_rows.TableRow], metric: str, better: "Goal"
    ) -> "list[RunRecord]":
        """The records of a row's trials; the best one has `chosen`. Of trials that all fail, the first is chosen."""
        folder = self.out / row.folder / "trials"
        records: list[RunRecord] = [
            {"name": trial.name, **self._finish(folder / trial.folder, row, TRIAL_SEED, trial.words)}
            for trial in trials
        ]
        values = [record.get("metrics", {}).get(f"eval_{metric}") for record in records]
        reached = [value for value in values if value is not None]
        place = values.index(functools.reduce(better, reached)) if reached else 0
        records[place] |= {"chosen": True, "chosen_words": list(trials[place].words)}
        return records

    def _finish(self, folder: Path, row: table_rows.TableRow, seed: int, words: Sequence[str]) -> "RunRecord":
        costs = self.costs[row.name]
        steps = [f"--steps={costs.steps}"] if costs.steps else []
        return self.cells.finish(folder, [*self.shared, *row.words, *words, *steps, f"--seed={seed}"], costs.failure)


def _chosen(records: "Sequence[RunRecord]") -> list[str]:
    """The words of the trial that was chosen; none where nothing was searched."""
    return next((record["chosen_words"] for record in records if "chosen_words" in record), [])


def _split(argv: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The texts of the flags that may be repeated, and the other words. --tune=lora is a flag of train.main."""
    repeated: dict[str, list[str]] = {name: [] for name in _REPEATED}
    rest: list[str] = []
    words = list(argv)
    while words:
        group = [words.pop(0)]
        while words and not words[0].startswith("--"):
            group.append(words.pop(0))
        (name, text), *_ = flags.parse(group).items()
        if name in repeated and text.text is not None and (name != "tune" or "=" in text.text):
            repeated[name].append(text.text)
        elif name in ("vary", "run"):
            raise UserError(f"--{name} needs a value; --help shows some")
        else:
            rest += group
    return repeated, rest


def _metrics(
    text: str, rows: Sequence[table_rows.TableRow], trials: Sequence[table_rows.TableRow], shared: Sequence[str]
) -> "dict[str, Goal]":
    """The metrics that are asked for, and which of two values is better.

    Raises UserError for one that a row's task has not, and for flags that train.main refuses.
    """
    from train.tasks import resolve, table

    names = text.split(",")
    metrics: Mapping[str, Goal] = {}
    for row in rows:
        for words in [trial.words for trial in trials] or [()]:
            argv = resolve.infer_task([*shared, *row.words, *words], run_folder.run_values)
            try:
                run, _ = resolve.resolve(argv, run_folder.resumed_values, run_folder.run_values)
            except UserError as error:
                raise UserError(f"row {row.name}: {error}") from error
        metrics = table.task_of(run).goals
        for name in names:
            if name not in metrics:
                raise UserError(f"--metric={name} is unknown{suggest(name, metrics)}")
    return {name: metrics[name] for name in names}
