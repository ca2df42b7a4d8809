"""What happens between training steps: log lines, evaluations, checkpoints, and the reasons to stop early."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import jax

from train import UserError
from train.devices import cpu, distributed
from train.runs import checkpoint
from train.runs import folder as folders
from train.settings.schema import Run
from train.training import optimizer
from train.training.evaluation import Evaluator
from train.training.interruption import catch_signals
from train.training.job import tokens_per_step
from train.training.metric_buffer import NotFiniteError
from train.training.progress import Progress
from train.training.recompilation import Guard
from train.training.recorder import Recorder
from train.training.step import State


@contextlib.contextmanager
def open_hooks(
    evaluator: Evaluator,
    train_step: Guard,
    progress: Progress,
    start: int,
    folder: Path,
    peak_seconds: float | None,
) -> "Iterator[Hooks]":
    """The hooks of a loop that begins after step `start`; inside, the mesh is set and signals are caught.

    `peak_seconds` is the time of a step at the peak of all devices, None if unknown. A full disk and a loss that is not
    finite become a UserError.
    """
    job, log = evaluator.job, evaluator.log
    goal = progress.stopping.goal
    store = checkpoint.Checkpoints(folder / folders.CHECKPOINTS, job.run.checkpoint.keep, goal=goal)
    recorder = Recorder(log, distributed.output_dir(folder), start, job.run.steps, progress.written)
    with (
        checkpoint.disk_errors(store.folder),
        contextlib.closing(store),
        contextlib.closing(recorder),
        jax.set_mesh(job.mesh),
        cpu.awake(job.mesh.local_devices, job.run.cpu.keep_awake),
        _explain_not_finite(evaluator.corpus, store, folder),
        catch_signals() as signalled,
    ):
        yield Hooks(evaluator, train_step, progress, recorder, store, signalled, peak_seconds)
    if len(train_step.shapes) > 1:
        log.info(f"the step was compiled for {len(train_step.shapes)} shapes of batches")
    if progress.stopping.should_stop:
        log.info(progress.stopping.message)


@dataclasses.dataclass(frozen=True)
class Hooks:
    """What happens after a step, when it is due."""

    evaluator: Evaluator
    train_step: Guard
    progress: Progress
    recorder: Recorder
    store: checkpoint.Checkpoints
    signalled: Callable[[], bool]
    peak_seconds: float | None

    @property
    def run(self) -> Run:
        """The configuration."""
        return self.evaluator.job.run

    def should_stop(self, step: int) -> bool:
        """Whether the loop ends here: at `--stop-at`, by a signal, or because patience has run out.

        Several processes agree on a signal before every log line, whichever of them received it.
        """
        stop_at = self.run.stop_at
        if (stop_at is not None and step >= stop_at) or self.progress.stopping.should_stop:
            return True
        if jax.process_count() == 1:
            return self.signalled()
        return step % self.run.log.every == 0 and distributed.any_process(self.signalled())

    def after_step(self, step: int, state: State, sums: Mapping[str, jax.Array]):
        """Log line, evaluation and checkpoint after that step, if they are due."""
        run = self.run
        buffer = self.progress.buffer
        compiled = self.train_step.compiled
        buffer.add(step, sums)
        if compiled:
            buffer.flush()  # the clock goes on when the compiled step is done
        self.recorder.tick(step, timed=not compiled)
        if step % run.log.every == 0:
            buffer.flush()
            self.recorder.write("train", step, self._train_metrics(step))
        save = step % run.checkpoint.every == 0
        if save or step % run.eval.every == 0:
            buffer.flush()
            with self.recorder.clock.pause():
                self._evaluate_and_save(step, state, save)

    def save_last(self, step: int, state: State):
        """Saves the state after the last step, if it is not saved yet."""
        self.progress.buffer.flush()
        if self.store.latest != step:
            self._save(step, state, None)

    def _train_metrics(self, step: int) -> dict[str, float]:
        """Metrics of the steps since the last log line."""
        seconds = self.recorder.clock.lap()
        sums = self.progress.buffer.pop()
        metrics = self.evaluator.job.task.metrics(sums)
        schedule = optimizer.schedule(self.run.optim, self.run.steps)
        metrics |= {"rate": float(schedule(step - 1)), "grad_norm": sums["grad_norm"] / sums["steps"]}
        if seconds:
            tokens = tokens_per_step(self.evaluator.job, self.evaluator.corpus)
            metrics |= {"tokens_per_s": tokens / seconds, "ms_per_step": 1000 * seconds}
        if seconds and self.peak_seconds:
            metrics["mfu"] = self.peak_seconds / seconds
        return metrics

    def _evaluate_and_save(self, step: int, state: State, save: bool):
        """An evaluation if it is due, and a checkpoint; with patience, also of weights that are the best so far."""
        stopping = self.progress.stopping
        metric: float | None = None
        if step % self.run.eval.every == 0:
            metrics = self.evaluator.during_training(state.eval_params)
            self.recorder.write("eval", step, metrics)
            metric = metrics[stopping.metric]
            if stopping.update(step, metrics) and self.run.eval.patience:
                save = True
        if save:
            self._save(step, state, metric)

    def _save(self, step: int, state: State, metric: float | None):
        self.store.save(step, state, self.progress.note(), metric)


@contextlib.contextmanager
def _explain_not_finite(corpus, store: checkpoint.Checkpoints, folder: Path) -> Iterator[None]:
    """A loss that is not finite as a UserError that names its step and rows."""
    try:
        yield
    except NotFiniteError as error:
        rows = corpus.rows(error.step - 1)[1].tolist()
        raise UserError(
            f"the loss of step {error.step} is not finite (rows {rows} of the training text); "
            f"the last good checkpoint is {store.latest or 'none'} in {folder}; "
            "lower --optim.rate or look at those rows"
        ) from error
