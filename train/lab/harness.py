"""A language model in EleutherAI's lm-evaluation-harness: `python -m train.harness --run=DIR --tasks=NAME[,NAME]`."""

import contextlib
import dataclasses
import os
import sys
import traceback
from pathlib import Path

from tfm.options.choices import check_fields, check_maximum, check_minimum
from tfm.options.errors import nearest
from train import UserError, exit_code
from train.files.strict_json import json_text
from train.runs.run_folder import open_folder
from train.settings import flags
from train.settings.limits import MAX_ROWS

USAGE = """usage: python -m train.harness --run=DIR --tasks=NAME[,NAME] [--include=FOLDER] [--shots=N] [--limit=N]

Prints one JSON object: the metrics of each task. Needs pip install -e ".[lm-eval]", and the network for tasks that
fetch their data."""


@dataclasses.dataclass(frozen=True)
class HarnessOptions:
    """What to measure.

    run: the run folder of a language model
    tasks: names of tasks, groups or tags, joined by commas; * stands for anything
    include: a folder with tasks of your own, as .yaml files
    shots: solved examples before each question; by default as many as the task says
    limit: questions of each task; by default all
    batch: texts at a time
    """

    run: str = ""
    tasks: str = ""
    include: str = ""
    shots: int | None = None
    limit: int | None = None
    batch: int = 16

    def __post_init__(self):
        if not self.run:
            raise ValueError("run=DIR must name the run folder of a language model")
        if not self.tasks.strip(", "):
            raise ValueError("tasks=NAME must name a task, such as lambada_openai")
        check_fields(self)
        check_minimum(self, shots=0, limit=1, batch=1)
        check_maximum(self, "its rows must fit into memory", batch=MAX_ROWS)
        if self.include and not Path(self.include).is_dir():
            raise ValueError(f"include={self.include} is not a folder; name one that holds .yaml files")


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(measure, argv)


def measure(argv):
    """Asks a model the questions of some tasks."""
    options = flags.options(HarnessOptions, USAGE, argv)
    if options is None:
        return
    folder = open_folder(options.run)
    if folder.task.generates != "continuation":
        raise UserError(
            f"--run={options.run} was trained for --task={folder.config.task.name}, which is no language model; "
            "train one with --task=lm"
        )
    try:
        import lm_eval  # noqa: F401
    except ModuleNotFoundError as error:
        raise UserError('lm-evaluation-harness is not installed; pip install -e ".[lm-eval]"') from error
    with contextlib.redirect_stdout(sys.stderr):  # lm_eval prints
        metrics = _measure(options, folder)
    print(json_text(metrics))


def _measure(options: HarnessOptions, folder) -> dict[str, dict]:
    """The metrics of each task. Raises UserError for a task without data, or with too few examples for its prompts."""
    from train.lab import lm_eval
    from train.screens.console import Log

    log = Log()
    with log.waiting("looking for the tasks"):
        from lm_eval import simple_evaluate

        manager, names = _find_tasks(options)

    os.environ["DISABLE_MULTIPROC"] = "1"  # its draws for standard errors: a process with jax in it does not fork
    try:
        results = simple_evaluate(
            lm_eval.HarnessModel(folder, options.batch, log),
            tasks=names,
            num_fewshot=options.shots,
            limit=options.limit,
            bootstrap_iters=1000,
            log_samples=False,
            task_manager=manager,
        )
    except (OSError, ImportError, ValueError) as error:
        if any(frame.f_code.co_filename == lm_eval.__file__ for frame, _ in traceback.walk_tb(error.__traceback__)):
            raise  # our own bug
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"--tasks={options.tasks} cannot be asked: {reason}") from error
    return {
        task: {name: value for name, value in metrics.items() if name not in ("name", "alias")}
        for task, metrics in results["results"].items()
    }


def _find_tasks(options: HarnessOptions):
    """A TaskManager that knows the tasks, and their names. Raises UserError where there is no such task.

    The folder of `--include` is searched first: to read the tasks that come with the harness takes a minute (M28).
    """
    from lm_eval.tasks import TaskManager

    wanted = options.tasks.replace(",", " ").split()
    if options.include:
        manager = TaskManager(include_path=options.include, include_defaults=False)
        if set(wanted) <= set(manager.all_subtasks):
            return manager, wanted
    manager = TaskManager(include_path=options.include or None)
    for name in wanted:
        if not manager.match_tasks([name]):
            suggestion = nearest(name, manager.all_tasks)
            remedy = f"did you mean {suggestion}?" if suggestion else "lm-eval ls tasks lists them"
            raise UserError(f"--tasks={name} is unknown; {remedy}")
    return manager, manager.match_tasks(wanted)
