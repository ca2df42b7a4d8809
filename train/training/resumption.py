"""A run that goes on: its newest checkpoint, and what the log says of what has changed since."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from train import UserError
from train.runs import run_folder, saved
from train.runs.state import State
from train.runs.teacher import fingerprint
from train.settings.gate import user_errors
from train.settings.schema import Run
from train.training.job import Job
from train.training.progress import Progress
from train.training.rates import rates

LogLine = Callable[[str], None]


def resume(job: Job, state: State, progress: Progress, folder: Path, log: LogLine) -> tuple[State, int, Progress]:
    """The newest checkpoint of a run folder, its step and its progress; the fresh state if there is none.

    Raises UserError for another teacher than before, and for steps that end before those that are done.
    """
    run = job.run
    _check_teacher(state, folder)
    place = run_folder.checkpoints_of(folder, run.checkpoint.folder)
    checkpoints = saved.SavedCheckpoints(place, run.checkpoint.verify)
    if not checkpoints.steps:
        log(f"{run.checkpoint.folder or folder} holds no checkpoint yet; starting at step 0")
        return state, 0, progress
    state, progress_state, done = checkpoints.restore(state, log)
    for flag, last in (("steps", run.steps), ("stop-at", run.stop_at)):
        if last is not None and last < done:
            raise UserError(f"--{flag}={last} lies before step {done}, which {folder} has done; ask for more")
    with user_errors(f"checkpoint {done} of {folder}"):
        progress.restore(progress_state)
    log(f"going on from step {done} of {run.checkpoint.folder or folder}")
    if (folder / run_folder.CONFIG).exists():
        before = run_folder.RunFolder(folder).config
        say_schedule(before, run, done, log)
        if run.eval.patience is not None and before.eval.patience is None:
            keep_best(progress, checkpoints, log)
    return state, done, progress


def _check_teacher(state: State, folder: Path):
    """Raises UserError if the weights of the teacher are no longer those that the run in the folder began with."""
    before = run_folder.RunFolder(folder).surroundings.get("teacher") if state.teacher is not None else None
    if before and before["hash"] != fingerprint(state.teacher):
        raise UserError(
            f"the weights of --teacher={before['folder']} have changed since {folder} began; restore them, or start a "
            "new run"
        )


def say_schedule(before: Run, run: Run, done: int, log: LogLine):
    """Says how other steps than before change the learning rate: the schedule is one of all steps."""
    if before.steps == run.steps:
        return
    old, new = (float(rates(dataclasses.replace(run, steps=steps))(done)) for steps in (before.steps, run.steps))
    change = f"stays {new:.3g}" if old == new else f"goes from {old:.3g} to {new:.3g}"
    schedule = f"the rate follows --optim.schedule={run.optim.schedule} over all of them"
    if run.phases:
        schedule = "the last phase ends with them, and the rate follows its schedule"
    log(f"steps were {before.steps:,} and are {run.steps:,}: {schedule}, and at step {done:,} it {change}")


def keep_best(progress: Progress, checkpoints: saved.SavedCheckpoints, log: LogLine):
    """Patience counts from the best evaluation whose weights are kept: a run without patience keeps those of few."""
    stopping = progress.stopping
    if stopping.state["step"] is None or stopping.state["step"] in checkpoints.steps:
        return
    kept = checkpoints.best_metric(stopping.goal)
    stopping.forget(kept)
    start = f"the best that were, {kept[1]:.4g} at step {kept[0]}" if kept else "the next evaluation"
    log(f"the weights of the best evaluation so far were not kept: --eval.patience counts from {start}")
