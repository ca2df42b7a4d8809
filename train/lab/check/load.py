"""The subject of a check: the run that flags describe, before its first step, or the run in a folder."""

from collections.abc import Sequence
from pathlib import Path

from train import UserError
from train.devices.mesh import use_cores
from train.lab.check.subject import Subject
from train.runs import run_folder
from train.screens.console import Log
from train.text import control_tokens
from train.training import startup


def subject_of_flags(argv: Sequence[str], log: Log) -> Subject:
    """The run that train.main would begin with these flags."""
    run, corpus = startup.prepare(argv, log, _refuse_resume)
    job = startup.job_on_mesh(run, log)
    state, _, _ = startup.first_state(job, corpus, Path(), log)
    return Subject(job, corpus, state.params, not run.init, log)


def _refuse_resume(folder: str):
    raise UserError(f"--resume goes on with a run, which is checked with --run={folder or 'RUN'}; leave it out")


def subject_of_folder(path: str, log: Log) -> Subject:
    """The run in a folder, with its weights and its data."""
    folder = run_folder.open_folder(path)
    run = folder.config
    use_cores(run)
    with control_tokens.reading(run.data.control_tokens):
        corpus = folder.task.load(run, log, folder)
    job = startup.job_on_mesh(run, log)
    return Subject(job, corpus, folder.load(job.mesh, log.info), False, log)
