"""The run folder of a model that lost some of its heads."""

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import tfm
from tfm.params import PyTree
from train.data.corpus import Corpus
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


class PruneReport(NamedTuple):
    """What is known of the smaller model.

    metrics: of result.json
    chosen: the model with the heads that stay
    results: models by the heads of a layer
    scores: [...,K,G] of all heads, by the name of an attention
    """

    metrics: Mapping[str, object]
    chosen: Pruned
    results: Mapping[int, Pruned]
    scores: Mapping[str, np.ndarray]


def write(target: Path, job: Job, params: PyTree, corpus: Corpus, done: int, report: PruneReport):
    """Makes the run folder of a job after `done` steps; it takes its name when it is complete."""
    part = target.with_name(f"{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        _write_run(part, job, params, corpus, done)
        _write_report(part, job, done, report)
        if target.exists():
            target.rmdir()
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write_run(path: Path, job: Job, params: PyTree, corpus: Corpus, done: int):
    """run.json, the tokenizer and a checkpoint, whose optimizer starts again."""
    settings = dataclasses.replace(job.run.checkpoint, folder="")
    run = dataclasses.replace(job.run, checkpoint=settings)
    run_folder.create(path, run, corpus.processor, startup.facts(job, corpus))
    progress = Progress(MetricBuffer(), EarlyStopping(job.task.goals, job.run.eval))
    progress.stopping.state = progress.stopping.state | {"step": done}
    average = step.new_average(params) if job.run.optim.has_average else None
    state = State(jnp.asarray(done, jnp.int32), params, job.optimizer.init(params), average, new_memory(job))
    store = Checkpoints(path / run_folder.CHECKPOINTS)
    store.save(done, state, progress.state(), None)
    store.close()


def _write_report(path: Path, job: Job, done: int, report: PruneReport):
    """result.json, heads.json and plots/heads.png: the metrics of the model, and those with other numbers of heads."""
    facts = {"task": job.run.task.name, "steps": done, "params": tfm.count_params(job.specs)}
    run_folder.write_json(path / run_folder.RESULT, {**facts, **report.metrics})
    shown = shown_metrics(job.task, report.results)
    plots.heads(list(report.results), shown, report.chosen.kept, report.scores, path)
    run_folder.write_json(
        path / HEADS,
        {
            "metrics": {"heads": list(report.results), **shown},
            "scores": {name: values.tolist() for name, values in report.scores.items()},
            "kept": {name: rows.tolist() for name, rows in report.chosen.places.items()},
        },
    )
