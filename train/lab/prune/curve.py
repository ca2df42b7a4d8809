"""The metrics of a model with fewer and fewer heads."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from tfm.catalogue.studies.pruning import cut_axis, gates_of, top_heads, with_gates
from tfm.params import PyTree
from train.data.corpus import Corpus
from train.losses.loss import Sums
from train.screens.console import Log
from train.tasks import record
from train.tasks.record import Task
from train.training import evaluation, step
from train.training.job import Job

# (params, batch) -> sums.
EvalStep = Callable[..., Sums]


class Pruned(NamedTuple):
    """A model with some heads, whose gates are closed for the rest.

    kept: heads of every layer, or of every group of query heads
    metrics: on the validation rows
    written: of what the task writes for them, such as BLEU, on as many as at an evaluation in training
    places: those heads, by the name of an attention (`tfm.catalogue.studies.pruning.top_heads`)
    """

    kept: int
    metrics: dict[str, float]
    written: dict[str, float]
    places: dict[str, np.ndarray]


def measure(job: Job, params: PyTree, corpus: Corpus, eval_step: EvalStep | None = None) -> dict[str, float]:
    """Metrics of parameters on the validation rows."""
    eval_step = eval_step or step.make_eval_step(job.task.loss, job.model)
    return record.measure(job.task, evaluation.measure(eval_step, params, corpus, job), corpus)


def measure_written(
    job: Job, params: PyTree, corpus: Corpus, log: Log, during_training: bool = False
) -> dict[str, float]:
    """Metrics of what the task writes for the validation rows, for fewer of them `during_training`; none of a task that
    writes nothing."""
    with evaluation.single_device(job.mesh, params) as local_params:
        return job.task.generation_metrics(local_params, job.run, corpus, log, during_training=during_training)


def measure_pruned(
    job: Job, params: PyTree, corpus: Corpus, scores: Mapping[str, np.ndarray], log: Log
) -> dict[int, Pruned]:
    """The model with its best heads, by their number: all, and one fewer each time, down to one."""
    letter, total = cut_axis(job.model)
    eval_step = step.make_eval_step(job.task.loss, job.model)
    results = {}
    for count in range(total, 0, -1):
        log.info(f"measuring with {count} of {total} heads")
        places = {name: top_heads(values, letter, count) for name, values in scores.items()}
        gates = {name: gates_of(rows, scores[name].shape, letter) for name, rows in places.items()}
        gated = with_gates(params, gates)
        metrics = measure(job, gated, corpus, eval_step)
        written = measure_written(job, gated, corpus, log, during_training=True)
        results[count] = Pruned(count, metrics, written, places)
    return results


def shown_metrics(task: Task, results: Mapping[int, Pruned]) -> dict[str, list[float]]:
    """The metrics of the picture, in the order of the results: the loss, and the first that should be high on the
    validation rows, and of what is written."""
    first = next(iter(results.values()))
    names = ["loss"]
    for part in (first.metrics, first.written):
        names += [name for name, goal in task.goals.items() if goal is max and name in part][:1]
    return {name: [(result.metrics | result.written)[name] for result in results.values()] for name in names}
