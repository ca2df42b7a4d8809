"""GLUE and SuperGLUE: `python -m train.glue --data=FOLDER|tfds --init=FOLDER [--tasks=NAME] [--suite=superglue]`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum
from train import UserError, exit_code
from train.lab import suite
from train.lab.glue import runner, settings, sources, submission, suites, table
from train.main import train
from train.predict import predict
from train.runs import run_folder
from train.settings import flags
from train.settings.limits import MAX_ROWS
from train.tasks import resolve

USAGE = """usage: python -m train.glue --data=FOLDER|tfds --init=FOLDER [--suite=glue|superglue] [--tasks=NAME,NAME]
                            [--grid=paper|small | --rate=X --batch=N --epochs=N] [--seeds=N] [--submission=DIR]

Fine-tunes a model for every task of a suite, measures it on the validation sets by the official rules, and prints one
table. The same command goes on after an interruption. Flags of train.main with a dot in their name (--model.dropout=0),
--tune and --preset go to every run."""


@dataclasses.dataclass(frozen=True)
class GlueOptions:
    """What to run.

    data: the folder that holds the folders of the tasks, or tfds
    init: the run folder or folder of transformers to start from; without one, --preset says what model starts fresh
    suite: glue | superglue
    tasks: names of tasks, joined by commas; by default all that are in the folder
    out: the folder of the runs, by default runs/SUITE; finished runs in it are not repeated
    grid: paper | small: rates, batch sizes and epochs to try, of Devlin et al. 2018 (18) or of Turc et al. 2019 (20)
    rate: peak learning rate; none: that of the preset nearest in width
    batch: rows of a batch
    epochs: passes over the training set
    steps: steps of every run in place of epochs, to try things out
    length: tokens of a row; none: 128, of some tasks of SuperGLUE 64 to 512, at most what the model reads
    seeds: runs of every task, or of its best setting, with the seeds 0, 1, ...
    submission: the folder for the predictions of the test sets, as the servers take them, of each task's best run
    keep: all | best: whose checkpoints stay when a task is finished
    """

    data: str = ""
    init: str = ""
    suite: Literal["glue", "superglue"] = "glue"
    tasks: str = ""
    out: str = ""
    grid: Literal["", "paper", "small"] = ""
    rate: float | None = None
    batch: int = 32
    epochs: float = 3.0
    steps: int | None = None
    length: int | None = None
    seeds: int = 1
    submission: str = ""
    keep: Literal["all", "best"] = "all"

    def __post_init__(self):
        if not self.data:
            raise ValueError("data=FOLDER must name the folder of the tasks, or tfds")
        check_fields(self)
        check_minimum(self, batch=1, seeds=1, steps=1, length=8)
        check_maximum(self, "no batch is as large", batch=MAX_ROWS, length=MAX_ROWS)
        check_maximum(self, "each is a training of its own", seeds=1000)
        for name in ("rate", "epochs"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name}={value} must be more than 0")
        changed = [
            name for name in ("rate", "batch", "epochs", "steps") if getattr(self, name) != getattr(GlueOptions, name)
        ]
        if self.grid and changed:
            raise ValueError(f"{changed[0]}={getattr(self, changed[0])} is varied by --grid={self.grid}; leave one out")


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(run, argv)


def run(argv):
    """Runs the tasks, and prints the table."""
    run_flags, own = _split(argv)
    options = flags.options(GlueOptions, USAGE, own)
    if options is None:
        return

    from train.screens.console import Log

    log = Log()
    source = sources.open_source(options.data, options.suite, log.info)
    tasks = _choose_tasks(options, source)
    shared = _settings(options, run_flags)
    out = Path(options.out or run_folder.ROOT / options.suite)
    work = runner.Runner(source, shared, out, runner.Commands(train, predict), log.info)
    if options.submission:
        submission.check_folder(options.submission)
    for task in tasks:
        work.check(task, tests=bool(options.submission))
    fixed = ("data", "init", "suite", "grid", "rate", "batch", "epochs", "steps", "length")
    values = {name: getattr(options, name) for name in fixed} | {"flags": sorted(run_flags)}
    suite.check_settings(out, values)
    absent = [task.name for task in suites.SUITES[options.suite] if not source.has(task)]
    results = table.summary(options.suite, {task.name: _finish(work, task, options) for task in tasks}, absent)
    run_folder.write_json(out / table.RESULTS, values | results)
    table.draw(results, out / "plots" / table.PICTURE)
    print(table.text(results))
    if options.submission:
        log.info(submission.completeness(Path(options.submission), options.suite))
    log.info(f"saved in {out}: {table.RESULTS}, plots/{table.PICTURE}, a folder for every task")


def _finish(work: runner.Runner, task: suites.GlueTask, options: GlueOptions) -> runner.TaskResult:
    """The runs of a task, its answers for the server, and its weights removed where nobody keeps them."""
    result = work.run(task, options.seeds)
    best = max(result["runs"], key=lambda run: run["score"])
    if options.submission:
        for part in work.tested_parts(task):
            answers = work.answer_test(task, part, best)
            path = submission.write(Path(options.submission), options.suite, task, part, answers)
            work.log(f"{part.name}: {len(answers):,} answers in {path}")
    if options.keep == "best":
        work.drop_weights(task, Path(best["folder"]))
    return result


def _split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words for train.main, and those of this command."""
    if not {"--help", "-h"}.isdisjoint(argv):
        return [], list(argv)
    names = {name for name in flags.parse(argv) if "." in name or name in ("tune", "preset")}
    run_flags, own = flags.split_argv(argv, names)
    settings.check_flags(run_flags)
    return run_flags, own


def _choose_tasks(options: GlueOptions, source: sources.Source) -> list[suites.GlueTask]:
    """The tasks of `--tasks`, or all that are there. Raises UserError where one of them, or every one, is missing."""
    chosen = suites.choose(options.suite, options.tasks)
    present = [task for task in chosen or suites.SUITES[options.suite] if source.has(task)]
    if missing := [task for task in chosen if task not in present]:
        folder = missing[0].train.partition("/")[0]
        raise UserError(f"--data={options.data} has no folder {folder}; fetch it, or leave {missing[0].name} out")
    if not present:
        names = ", ".join(task.train.partition("/")[0] for task in suites.SUITES[options.suite])
        raise UserError(f"--data={options.data} holds no task of {options.suite}; it has a folder for each: {names}")
    return present


def _settings(options: GlueOptions, run_flags: Sequence[str]) -> settings.GlueSettings:
    """What the runs share, read as train.main reads it. Raises UserError for flags that it refuses."""
    if not options.init and not any(word.startswith("--preset") for word in run_flags):
        raise UserError("say what to fine-tune with --init=FOLDER, or --preset=NAME for fresh weights")
    words = ["--task=classify", *([f"--init={options.init}"] if options.init else []), *run_flags]
    config, _ = resolve.resolve([*words, "--batch.length=8"], run_folder.resumed_values, run_folder.run_values)
    rate = config.optim.rate if options.rate is None else options.rate
    grid = settings.grid(options.grid, rate, options.batch, options.epochs)
    limit = config.model.max_length
    return settings.GlueSettings(options.init, grid, options.steps, options.length, limit, run_flags)
