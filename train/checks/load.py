"""The subject of a check: the run that flags describe, before its first step, or the run in a folder."""

from collections.abc import Sequence
from pathlib import Path

import jax

from train import UserError, tasks
from train.checks.subject import Subject
from train.costs import capacity
from train.devices import mesh as devices
from train.reporting.console import Log
from train.runs import folder as folders
from train.settings import resolve
from train.training import startup


def subject_of_flags(argv: Sequence[str], log: Log) -> Subject:
    """The run that train.main would begin with these flags."""
    run, explicit = resolve.resolve(resolve.infer_task(argv, folders.run_values), _refuse_resume, folders.run_values)
    devices.use_cores(run)
    capacity.check_run(run, explicit)
    saved = folders.read_saved(run.init, facts=False) if run.init else None
    corpus = tasks.find(run.task.name).load(run, log, saved)

    run = resolve.fill_from_data(run, explicit, corpus.sizes, jax.default_backend())
    job = startup.job_on_mesh(run, log)
    state, _, _ = startup.first_state(job, corpus, Path(), log)
    return Subject(job, corpus, state.params, not run.init, log)


def _refuse_resume(folder: str):
    raise UserError(f"--resume goes on with a run, which is checked with --run={folder or 'RUN'}; leave it out")


def subject_of_folder(path: str, log: Log) -> Subject:
    """The run in a folder, with its weights and its data."""
    folder = folders.open_folder(path)
    run = folder.config
    devices.use_cores(run)
    corpus = folder.task.load(run, log, folder)
    job = startup.job_on_mesh(run, log)
    return Subject(job, corpus, folder.load(job.mesh, log.info), False, log)
