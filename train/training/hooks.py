"""What happens between training steps: log lines, evaluations, checkpoints, and the reasons to stop early."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import jax

import tfm
from tfm.options.dotted import flatten
from train import DivergedError, interruption
from train.devices import cpu, distributed, watchdog
from train.losses.teaching import training_metrics
from train.runs import checkpoint, run_folder
from train.runs.state import LossScale, State
from train.settings.schema import Run
from train.training.diverged import replay
from train.training.evaluation import Evaluator
from train.training.layer_norms import LayerNorms
from train.training.loss_scale import OVERFLOWS
from train.training.metric_buffer import NotFiniteError
from train.training.phases import PhaseJobs
from train.training.progress import Progress
from train.training.rates import rates
from train.training.recorder import Recorder

# A file in the run folder that asks for a checkpoint, and the seconds between two looks for it.
SAVE, LOOK_EVERY = "save", 1.0


@contextlib.contextmanager
def open_hooks(
    phases: PhaseJobs,
    progress: Progress,
    state: State,
    folder: Path,
    peak_seconds: Sequence[float | None],
) -> "Iterator[Hooks]":
    """The hooks of a loop that begins with `state`; inside, the mesh is set, and signals wait from the first step on.

    `peak_seconds` are the times of a step of each part of the phases at the peak of all devices, None if unknown. A
    full disk and a loss that is not finite become a UserError.
    """
    job, log = phases.job, phases.log
    deferral = interruption.Deferral()
    start = int(distributed.to_host(state.step))
    goal = progress.stopping.goal
    settings = job.run.checkpoint
    store = checkpoint.Checkpoints(run_folder.checkpoints_of(folder, settings.folder), settings.keep, goal=goal)
    tracked = job.run.log.trackers if distributed.is_main() else ()
    output = distributed.output_dir(folder)
    recorder = Recorder(log, output, start, job.run.steps, progress.written, tracked, flatten(job.run))
    with (
        deferral,
        checkpoint.disk_errors(store.folder),
        contextlib.closing(store),
        contextlib.closing(recorder),
        jax.set_mesh(job.mesh),
        cpu.awake(job.mesh.local_devices, job.run.cpu.keep_awake),
        _explain_not_finite(phases, store, folder, deferral),
    ):
        request = SaveRequest(folder / SAVE)
        hooks = Hooks(phases, progress, recorder, store, deferral, request, peak_seconds)
        hooks.resume(start, state)
        yield hooks
    if phases.num_programs > 1:
        log.info(f"the step was compiled for {phases.num_programs} {phases.programs}")
    if progress.stopping.should_stop:
        log.info(progress.stopping.message)


@dataclasses.dataclass(frozen=True)
class Hooks:
    """What happens after a step, when it is due."""

    phases: PhaseJobs
    progress: Progress
    recorder: Recorder
    store: checkpoint.Checkpoints
    deferral: interruption.Deferral
    request: "SaveRequest"
    peak_seconds: Sequence[float | None]
    layers: LayerNorms = dataclasses.field(default_factory=LayerNorms)

    @property
    def run(self) -> Run:
        """The configuration."""
        return self.phases.job.run

    def should_stop(self, step: int) -> bool:
        """Whether the loop ends here: at `--stop-at`, by a signal, or because patience has run out.

        Several processes agree on a signal before every log line, whichever of them received it.
        """
        stop_at = self.run.stop_at
        if (stop_at is not None and step >= stop_at) or self.progress.stopping.should_stop:
            return True
        if jax.process_count() == 1:
            return bool(interruption.received())
        return step % self.run.log.every == 0 and interruption.record(distributed.largest(interruption.received()))

    def after_step(self, step: int, state: State, sums: Mapping[str, jax.Array]):
        """Log line, evaluation and checkpoint after that step, if they are due."""
        self.deferral.begin()
        watchdog.moved(step)
        with _freed_if_not_finite(state):
            self._after_step(step, state, sums)

    def _after_step(self, step: int, state: State, sums: Mapping[str, jax.Array]):
        run = self.run
        buffer = self.progress.buffer
        compiled = self.phases.of_state(step).train_step.compiled
        buffer.add(step, sums)
        if compiled:
            buffer.flush()  # the clock goes on when the compiled step is done
        self.recorder.tick(step, timed=not compiled)
        if step % run.log.every == 0:
            buffer.flush()
            metrics = self._train_metrics(step, state.scale)
            with self.recorder.clock.pause():
                metrics |= self.layers.metrics(self.phases, step, state)
            self.recorder.write("train", step, metrics)
        save = step % run.checkpoint.every == 0
        if save or step % run.eval.every == 0:
            buffer.flush()
            with self.recorder.clock.pause():
                self._evaluate_and_save(step, state, save)
        if self.request.is_due(step, run.log.every):
            with self.recorder.clock.pause():
                self.save_last(step, state)
                self.store.wait()
            self.request.done()
            self.phases.log.info(f"saved step {step}, as {self.request.path} asked")

    def resume(self, step: int, state: State):
        """Does the evaluation after that step, if a signal has cut it off before."""
        if self.progress.evaluation_due:
            with self.recorder.clock.pause():
                self._evaluate_and_save(step, state, save=False)

    def save_last(self, step: int, state: State):
        """Saves the state after the newest step, if it is not saved yet."""
        self.deferral.begin()
        with _freed_if_not_finite(state):
            self.progress.buffer.flush()
            if self.store.latest != step:
                self._save(step, state, None)

    def _train_metrics(self, step: int, scale: LossScale | None) -> dict[str, float]:
        """Metrics of the steps since the last log line, and the scale of the loss."""
        seconds = self.recorder.clock.lap()
        sums = self.progress.buffer.pop()
        metrics = _phase_metrics(self.phases, step) | training_metrics(self.phases.job.task.metrics, sums)
        metrics |= self._update_metrics(step, scale, sums)
        metrics |= self.phases.of_state(step).corpus.source_metrics(step, sums)
        first = step - int(sums["steps"])
        if seconds:
            tokens = self.phases.mean(self.phases.tokens, first, step)
            metrics |= {"tokens_per_s": tokens / seconds, "ms_per_step": 1000 * seconds}
        peaks = [value for value in self.peak_seconds if value]
        if seconds and len(peaks) == len(self.peak_seconds):
            metrics["mfu"] = self.phases.mean(peaks, first, step) / seconds
        return metrics

    def _update_metrics(self, step: int, scale: LossScale | None, sums: Mapping[str, float]) -> dict[str, float]:
        """The learning rate of that step, the mean norm of gradients, and the scale of the loss."""
        left_out = int(distributed.to_host(scale.overflows)) if scale else 0
        overflows = sums.get(OVERFLOWS, 0.0)
        rate = float(rates(self.run)(max(0, step - 1 - left_out)))
        metrics = {"rate": rate, "grad_norm": sums["grad_norm"] / max(1, sums["steps"] - overflows)}
        if scale:
            metrics |= {"loss_scale": float(distributed.to_host(scale.value)), OVERFLOWS: overflows}
        return metrics

    def _evaluate_and_save(self, step: int, state: State, save: bool):
        """An evaluation if it is due, and a checkpoint; with patience, also of weights that are the best so far."""
        stopping = self.progress.stopping
        metric: float | None = None
        metrics: dict[str, float] = {}
        if step % self.run.eval.every == 0:
            metrics = _evaluate(self.phases.of_state(step).evaluator, state, self.deferral)
            self.progress.evaluation_due = not metrics
        if metrics:
            self.recorder.write("eval", step, _phase_metrics(self.phases, step) | metrics)
            metric = metrics[stopping.metric]
            if stopping.update(step, metrics) and self.run.eval.patience:
                save = True
        if save:
            self._save(step, state, metric)

    def _save(self, step: int, state: State, metric: float | None):
        """Saves the state. Raises NotFiniteError: nobody could go on from parameters that are not finite."""
        names = tfm.names_not_finite(state.eval_params)
        if distributed.any_process(bool(names)):
            raise NotFiniteError(step, {}, names)
        self.store.save(step, state, self.progress.state(), metric)


def _evaluate(evaluator: Evaluator, state: State, deferral: interruption.Deferral) -> dict[str, float]:
    """The metrics of an evaluation; none if a signal cuts it off, where nobody else waits for this process, and no best
    checkpoint depends on it."""
    if jax.process_count() > 1 or evaluator.job.run.eval.patience:
        return evaluator.during_training(state.eval_params)
    with contextlib.suppress(interruption.Interrupted), deferral.suspended():
        return evaluator.during_training(state.eval_params)
    return {}


def _phase_metrics(phases: PhaseJobs, step: int) -> dict[str, float]:
    """The number of the phase that a step belongs to, in a run of phases."""
    return {"phase": phases.of_state(step).steps.phase} if phases.job.run.phases else {}


class SaveRequest:
    """The file `save` in a run folder: who makes it asks for a checkpoint."""

    def __init__(self, path: Path):
        self.path = path
        self._looked = time.monotonic()

    def is_due(self, step: int, every: int) -> bool:
        """Whether the file is there. Looks once a second; with several processes, every `every` steps."""
        if jax.process_count() > 1:
            return step % every == 0 and distributed.any_process(distributed.is_main() and self.path.exists())
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY:
            return False
        self._looked = now
        return self.path.exists()

    def done(self):
        """Removes the file."""
        if distributed.is_main():
            self.path.unlink(missing_ok=True)


@contextlib.contextmanager
def _freed_if_not_finite(state: State) -> Iterator[None]:
    """Frees the arrays of a state that is worth nothing: the state before the bad step needs their memory."""
    try:
        yield
    except NotFiniteError:
        for leaf in jax.tree.leaves(state):
            leaf.delete()
        raise


@contextlib.contextmanager
def _explain_not_finite(
    phases: PhaseJobs,
    store: checkpoint.Checkpoints,
    folder: Path,
    deferral: interruption.Deferral,
) -> Iterator[None]:
    """Values that are not finite as a UserError that names the step, the layer and the rows where they begin."""
    try:
        yield
    except NotFiniteError as error:
        store.wait()
        good, step = store.latest or "none", error.step
        with deferral.suspended():
            place = replay.explain(phases, folder, error)
        subject = "the loss of" if error.values else "what the parameters are after"
        raise DivergedError(
            f"{subject} step {step} is not finite: {place}; the last good checkpoint is {good} in {folder}; "
            f"lower --optim.rate or look at those rows; python -m train.replay --run={folder} shows the step"
        ) from error
