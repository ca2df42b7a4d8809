"""The model without some of its heads: what is read, scored, cut and compared."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path

import jax
import numpy as np

import tfm
from tfm.catalogue.studies.pruning import cut_axis, cut_config, cut_heads
from tfm.low_rank import merge_low_rank
from tfm.params import PyTree
from train import UserError
from train.data.corpus import Corpus
from train.lab.prune.curve import Pruned
from train.lab.prune.options import PruneOptions
from train.lab.prune.scores import by_gradient, by_learned_gates
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import RunFolder, checkpoints_of
from train.runs.saved import SavedCheckpoints
from train.screens.console import Log
from train.training.job import Job, device_batch

# Training batches that are read, by how heads are scored.
BATCHES = {"gradient": 16, "learned": 200}


def load_params(options: PruneOptions, folder: RunFolder | HfFolder, job: Job, log: Log) -> PyTree:
    """The parameters to prune, updates merged. Raises UserError for a model without a head of its task."""
    params = merge_low_rank(folder.load(job.mesh, log.info, options.average))
    if not isinstance(params, type(job.specs)):
        raise UserError(
            f"--run={options.run} holds a model without a head that could be measured; fine-tune it first with --init"
        )
    if not isinstance(job.task.final_model(job.run, params), type(params)):
        raise UserError(
            f"--run={options.run} holds a second model, which training alone needs; fine-tune it first with --init"
        )
    return params


def score_heads(options: PruneOptions, job: Job, params: PyTree, corpus: Corpus) -> dict[str, np.ndarray]:
    """The scores of the heads, on training batches."""
    count = options.batches or BATCHES[options.by]
    batches = ({name: field[0] for name, field in device_batch(job, corpus, n).items()} for n in range(count))
    if options.by == "gradient":
        scores = by_gradient(job.task.loss, job.model, params, batches)
    else:
        scores = by_learned_gates(job.task.loss, job.model, params, batches, options.penalty, job.run.seed)
    if not scores:
        raise UserError(f"--run={options.run} cannot be pruned: mixer={job.model.mixer.name} has no heads")
    return scores


def cut(options: PruneOptions, job: Job, params: PyTree, pruned: Pruned) -> tuple[Job, PyTree]:
    """The job of the smaller model, and its parameters. Raises UserError where heads cannot be cut."""
    letter, _ = cut_axis(job.model)
    try:
        small = cut_heads(params, job.specs, pruned.places, letter)
        model = cut_config(job.run.model, letter, pruned.kept)
    except ValueError as error:
        raise UserError(f"--run={options.run} cannot be pruned: {error}") from error
    small_job = dataclasses.replace(job, run=dataclasses.replace(job.run, model=model))
    sizes, expected = ([leaf.shape for leaf in jax.tree.leaves(tree)] for tree in (small, small_job.specs))
    if sizes != expected:
        raise UserError(
            f"--run={options.run} cannot be pruned: mixer={model.mixer.name} or position={model.position.name} has "
            "arrays whose sizes depend on the heads, and which do not say where these are"
        )
    return small_job, jax.device_put(small, tfm.shardings(small_job.specs, job.mesh))


def check_same(options: PruneOptions, model: tfm.Config, metrics: dict[str, float], gated: dict[str, float]):
    """Raises UserError if the smaller model is not the one whose heads gates have closed."""
    tolerance = 2e-5 if model.dtype == "float32" else 2e-2
    if not math.isclose(metrics["loss"], gated["loss"], rel_tol=tolerance, abs_tol=1e-6):
        raise UserError(
            f"--run={options.run} cannot be pruned: what position={model.position.name} or mixer={model.mixer.name} "
            "gives a head depends on how many there are"
        )


def saved_job(job: Job, folder: RunFolder | HfFolder, target: Path) -> Job:
    """The job as its run.json has it: batches and mesh are those of the old run."""
    run = dataclasses.replace(job.run, batch=folder.config.batch, mesh=folder.config.mesh, out=str(target))
    return dataclasses.replace(job, run=run)


def summary(job: Job, small_job: Job, metrics: Mapping[str, object], before: Mapping[str, object]) -> dict[str, object]:
    """Heads, parameters and metrics of the smaller model, and those of the model before."""

    def sizes(job: Job) -> dict[str, object]:
        return {"heads": job.model.heads, "params": tfm.count_params(job.specs)}

    old = sizes(job) | {name: before[name] for name in job.task.goals if name in before}
    return {**sizes(small_job), **metrics, **{f"{name}_before": value for name, value in old.items()}}


def steps_done(folder: RunFolder | HfFolder) -> int:
    """The steps of the newest checkpoint; 0 of a Hugging Face folder."""
    return max(SavedCheckpoints(checkpoints_of(folder.path, folder.config.checkpoint.folder)).steps, default=0)
