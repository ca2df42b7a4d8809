"""Evaluation on the validation rows: during training, and of the last or the best weights at its end."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

import tfm
from tfm.catalogue.options.positions.grid import WindowPosition
from tfm.params import PyTree
from train import DivergedError
from train.data import by_source, feed
from train.data.corpus import Corpus
from train.devices import distributed, watchdog
from train.losses.loss import MEMORY
from train.runs import run_folder, saved
from train.runs.state import State
from train.screens import finite, plots
from train.screens.console import Log
from train.tasks import record
from train.training import step
from train.training.job import Job, new_memory

# A sum over the validation rows, or an array of all of them.
Outcome = np.ndarray | float

# Positions that plots/positions.png shows.
LONGEST_PICTURE = 64


@dataclasses.dataclass(frozen=True)
class Evaluator:
    """Evaluates parameters of a job on the validation rows of its corpus; a task may draw into the folder meanwhile."""

    job: Job
    corpus: Corpus
    log: Log
    folder: Path | None = None

    def during_training(self, params) -> dict[str, float]:
        """Metrics of `--eval.batches` batches, and of what a generating task writes during training."""
        outputs = self._measure(params, self.job.run.eval.batches or 0)
        metrics = record.measure(self.job.task, outputs, self.corpus, during_training=True)
        generation = self._generation_metrics(params, during_training=True)
        self._draw_progress(params)
        return metrics | {name: value for name, value in generation.items() if isinstance(value, float)}

    def finish(self, done: int, state: State, folder: Path, seconds: float) -> dict[str, object]:
        """The final metrics, written to result.json with facts about the run of `done` steps."""
        job = self.job
        metrics: dict[str, object] = {}
        if job.run.eval.final:
            params = state.eval_params
            if job.run.eval.patience:
                settings = job.run.checkpoint
                place = run_folder.checkpoints_of(folder, settings.folder)
                params = saved.load_params(place, params, self.log.info, settings.verify, best=True)
            metrics = self._final_metrics(params, distributed.output_dir(folder))
        facts = {
            "task": job.run.task.name,
            "steps": done,
            "seconds": round(seconds, 1),
            "params": tfm.count_params(job.specs),
        }
        run_folder.write_json(distributed.output_dir(folder) / run_folder.RESULT, facts | metrics)
        if job.run.eval.final:
            with single_device(job.mesh, params) as local_params:
                _draw_positions(local_params, job.model, distributed.output_dir(folder))
        return metrics

    def _final_metrics(self, params: PyTree, folder: Path) -> dict[str, object]:
        """Metrics of all validation rows and of what the task writes for them; the task reports on them."""
        run, task = self.job.run, self.job.task
        with jax.set_mesh(self.job.mesh):
            outputs = self._measure(params)
            metrics = record.measure(task, outputs, self.corpus) | task.baselines(self.corpus)
            result: dict[str, object] = {f"eval_{name}": value for name, value in metrics.items()}
            result |= self._generation_metrics(params, during_training=False)
            with single_device(self.job.mesh, params) as local_params:
                task.report(local_params, run, self.corpus, self.log, outputs, folder)
        return result

    def _measure(self, params: PyTree, max_batches: int = 0) -> dict[str, Outcome]:
        job = self.job
        return measure(self._eval_step, params, self.corpus, job, max_batches)

    @cached_property
    def _eval_step(self):
        return step.make_eval_step(self.job.task.loss, self.job.model)

    def _draw_progress(self, params):
        """Pictures of what a task makes during training, of those that draw some."""
        draw = self.job.task.draw_progress
        if draw and self.folder:
            with single_device(self.job.mesh, params) as local_params:
                draw(local_params, self.job.run, self.corpus, distributed.output_dir(self.folder))

    def _generation_metrics(self, params, during_training: bool) -> dict[str, object]:
        """Metrics of what a generating task writes for validation rows; none of other tasks."""
        job = self.job
        if not job.task.generates:
            return {}
        with single_device(job.mesh, params) as local_params:
            options = {"during_training": during_training}
            return job.task.generation_metrics(local_params, job.run, self.corpus, self.log, **options)


def measure(eval_step, params, corpus, job: Job, max_batches: int = 0) -> dict[str, Outcome]:
    """Sums, and arrays of all rows, over the validation batches; `max_batches` of them, 0 for all. Of several sources
    also the sums of each (`by_source`).

    Rows that continue one another have a memory, which is empty before the first batch. Raises UserError if values are
    not finite.
    """
    outputs: dict[str, list] = {}
    rows: list[np.ndarray] = []
    memory = jax.jit(functools.partial(new_memory, job, 1))()
    sources = [part.source for part in corpus.valid_parts(max_batches)]
    for n, batch in enumerate(corpus.valid_batches(max_batches, functools.partial(feed.local_rows, job.mesh, 1))):
        fields = feed.to_devices(batch, job.batch_spec, job.mesh)
        arrays = dict(eval_step(params, fields, memory))
        next_memory = arrays.pop(MEMORY, None)
        results = {name: distributed.to_host(value) for name, value in arrays.items()}
        if tfm.names_not_finite(results):
            raise DivergedError(finite.explain(eval_step, params, fields, memory))
        watchdog.moved()
        results, numbers = corpus.by_text(batch, results)
        rows.append(numbers)
        for name, value in results.items():
            outputs.setdefault(name, []).append(value)
            if sources:
                outputs.setdefault(f"{name}{by_source.OF}{sources[n]}", []).append(value)
        memory = next_memory
    order = np.argsort(np.concatenate(rows), kind="stable") if corpus.layout else slice(None)
    return {
        name: np.concatenate(values)[order] if values[0].ndim else float(np.sum(values, dtype=np.float64))
        for name, values in outputs.items()
    }


def _draw_positions(params, model: tfm.Config, folder: Path):
    """Draws plots/positions.png: of the decoder where there is one, else of the encoder with which a model begins."""
    decoder = tfm.decoder_of(params) if isinstance(params, tfm.Seq2Seq) else getattr(params, "decoder", None)
    stack = getattr(params, dataclasses.fields(params)[0].name) if decoder is None else decoder
    length = min(LONGEST_PICTURE, model.max_length or LONGEST_PICTURE)
    positions = [kind.position for kind in model.kinds]
    sides = [position.side(model) for position in positions if isinstance(position, WindowPosition)]
    length = min([length, *(side**2 for side in sides)])  # positions may be those in a window
    causal = decoder is not None or model.head.causal
    scores = tfm.position_scores(stack, model, length, causal=causal)
    plots.positions(tfm.position_similarity(stack, model, length), scores, folder)


@contextlib.contextmanager
def single_device(mesh: Mesh, params: PyTree) -> Iterator[PyTree]:
    """The parameters for work that every process does alone, on one of its devices if there are several processes.

    All processes write the same texts, and none may wait for another.
    """
    if jax.process_count() > 1:
        mesh = tfm.make_mesh(devices=jax.local_devices()[:1])
    local_params = distributed.to_local_device(params)
    with jax.set_mesh(mesh):
        yield local_params
