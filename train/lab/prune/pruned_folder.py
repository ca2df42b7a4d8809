"""The run folder of a model that lost some of its heads."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import tfm
from train.lab.prune.curve import Pruned, shown_metrics
from train.runs import run_folder
from train.runs.checkpoint import Checkpoints
from train.runs.state import State
from train.screens import plots
from train.training import startup, step
from train.training.early_stopping import EarlyStopping
from train.training.job import Job, new_memory
from train.training.metric_buffer import MetricBuffer
from train.training.progress import Progress

HEADS = "heads.json"


def write(target: Path, job: Job, params: Any, corpus: Any, done: int, report: Mapping[str, Any]):
    """Makes the run folder of a job after `done` steps; it takes its name when it is complete.

    `report` is what `write_report` takes.
    """
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        _write_run(part, job, params, corpus, done)
        _write_report(part, job, done, **report)
        if target.exists():
            target.rmdir()
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_run(path: Path, job: Job, params: Any, corpus: Any, done: int):
    """run.json, the tokenizer and a checkpoint, whose optimizer starts again."""
    run_folder.create(path, job.run, corpus.processor, startup.facts(job, corpus))
    progress = Progress(MetricBuffer(), EarlyStopping(job.task.goals, job.run.eval))
    progress.stopping.state = progress.stopping.state | {"step": done}
    average = step.new_average(params) if job.run.optim.ema else None
    state = State(jnp.asarray(done, jnp.int32), params, job.optimizer.init(params), average, new_memory(job))
    store = Checkpoints(path / run_folder.CHECKPOINTS)
    store.save(done, state, progress.state(), None)
    store.close()


def _write_report(
    path: Path,
    job: Job,
    done: int,
    metrics: Mapping[str, Any],
    chosen: Pruned,
    results: Mapping[int, Pruned],
    scores: Mapping[str, np.ndarray],
):
    """result.json, heads.json and plots/heads.png: the metrics of the model, and those with other numbers of heads."""
    facts = {"task": job.run.task.name, "steps": done, "params": tfm.count_params(job.specs)}
    run_folder.write_json(path / run_folder.RESULT, facts | dict(metrics))
    shown = shown_metrics(job.task, results)
    plots.heads(list(results), shown, chosen.kept, scores, path)
    run_folder.write_json(
        path / HEADS,
        {
            "metrics": {"heads": list(results), **shown},
            "scores": {name: values.tolist() for name, values in scores.items()},
            "kept": {name: rows.tolist() for name, rows in chosen.places.items()},
        },
    )
