"""The training loop: steps, log lines, evaluations and checkpoints, until the end or an interruption."""

import contextlib
import dataclasses
import functools
import json
import signal
from pathlib import Path
from typing import Any

import jax

import tfm
from train import UserError, evaluate
from train.costs import advice, counting
from train.costs.memory import step_memory
from train.data import feed
from train.devices import cpu, distributed
from train.devices import mesh as devices
from train.devices.specs import memory_bytes, peak_flops
from train.reporting.console import Log, Recorder
from train.runs import checkpoint, pretrained
from train.runs import folder as folders
from train.settings import schema
from train.training import optimizer, recompilation, step
from train.training.early_stopping import Best
from train.training.job import Job
from train.training.metric_buffer import NotFiniteError, Window

# What result.json holds beside metrics.
FACTS = ("task", "steps", "seconds", "params")


def check_alike(corpus):
    """Raises UserError where processes have read another text, or split it in another way."""
    if not distributed.all_equal(json.dumps(corpus.facts(), sort_keys=True)):
        raise UserError(
            "the text is not the same in all processes; let them share one folder of data, and one cache with TFM_CACHE"
        )


class Training:
    """One run under way."""

    def __init__(self, run: schema.Run, task, corpus, mesh, log: Log):
        self.run, self.task, self.corpus, self.mesh, self.log = run, task, corpus, mesh, log
        job = Job(run, task, mesh)
        self.specs, self.rate = job.specs, optimizer.schedule(run.optim, run.steps)
        with advice.explain_oom(self._advice):
            self.state = step.new_state(self.specs, job.optimizer, run.seed, mesh, run.optim.ema)
        self.spec = job.batch_spec
        laid = lambda name, field: feed.layout(self.spec[name], field.shape, mesh, run.batch.accumulate).shape
        announced = [{name: laid(name, field) for name, field in fields.items()} for fields in corpus.example_batches()]
        self.train_step = recompilation.Guard(job.train_step, announced)
        self.eval_step = step.make_eval_step(task.loss, job.model)
        self.share = functools.partial(feed.local_rows, mesh, run.batch.accumulate)
        self.window, self.step, self.best = Window(), 0, Best(task.METRICS, run.eval)
        self.shapes: set[Any] = set()  # of batches for which the step has been compiled
        self.kernels, self.memory, self.flops = self._costs(job)
        self.peak = peak_flops(jax.devices()[0].device_kind) if run.model.dtype == "bfloat16" else None

    def _costs(self, job: Job) -> tuple[list[str], dict[str, float], int]:
        """What computes attention; bytes that a device needs, by what for; and floating-point operations of a step, twice as many backward
        as forward: those of the model, whatever the kernel. Raises UserError where the kernel that is asked for cannot do it."""
        run = self.run
        key = jax.random.key(0) if run.model.dropout else None
        with jax.set_mesh(self.mesh):
            batch = feed.to_devices(self.corpus.batch(0, self.share), self.spec, self.mesh, run.batch.accumulate)
            part = jax.tree.map(lambda field: field[0], batch)
            try:
                kernels = counting.kernels(job.loss, self.state.params, part, key)
            except tfm.KernelError as error:
                raise UserError(f"--attention.{error}") from error
            return kernels, step_memory(job, self.state, part), counting.model_flops(job, part)

    def _advice(self) -> str:
        """What to change so that the step fits into the memory of a device."""
        needs = lambda run: step_memory(Job(run, self.task, devices.mesh_for(run, self.task.specs(run))))
        return advice.advise(self.run, self.mesh.size, needs, memory_bytes(jax.local_devices()[0]))

    def start_from(self, folder: Path):
        """Takes the state of the run to resume, or the weights of `--init`; else the fresh state stays."""
        run = self.run
        if run.resume:
            store = self._store(folder)
            if store.latest is None:
                self.log.info(f"{folder} holds no checkpoint yet; starting at step 0")
            else:
                self.state, note, self.step = store.restore(self.state, self.log.info)
                self.window, self.best.note = Window(note["window"]), note["best"]
                self.log.info(f"going on from step {self.step} of {folder}")
            store.close()
        elif run.init:
            params, fresh = pretrained.load_parts(run.init, self.state.params, self.mesh, self.log.info)
            if fresh:
                self.log.info(f"taken from {run.init}: its weights; what it lacks starts fresh: {', '.join(fresh)}")
            average = (
                None
                if self.state.ema is None
                else jax.tree.map(lambda leaf: jax.numpy.copy(leaf).astype("float32"), params)
            )
            self.state = dataclasses.replace(self.state, params=params, ema=average)

    def facts(self) -> dict[str, Any]:
        """What run.json records beside the configuration."""
        return {
            "data": self.corpus.facts(),
            "devices": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
            "processes": jax.process_count(),
            "mesh": {name: int(size) for name, size in self.mesh.shape.items()},
            "params": tfm.count_params(self.specs),
        }

    def announce(self):
        """The start-up tables."""
        self.log.table(f"{self.run.task.name} {self.run.preset}", self._overview())
        if self.mesh.size > self.mesh.shape["data"]:
            self.log.table("what is spread over which devices", devices.sharding_table(self.specs, self.mesh))

    def _overview(self) -> dict[str, str]:
        run, facts = self.run, self.facts()
        batch = (
            f"{run.batch.size} x {run.batch.length} tokens"
            if not run.batch.tokens
            else f"at most {run.batch.tokens:,} tokens a side"
        )
        batch += f" in {run.batch.accumulate} parts" if run.batch.accumulate > 1 else ""
        return {
            "parameters": f"{facts['params']:,}",
            **self.corpus.overview(),
            "devices": facts["devices"]
            + f", {run.model.dtype}"
            + (f", in {facts['processes']} processes" * (facts["processes"] > 1)),
            "attention": "; ".join(self.kernels),
            "memory": self._memory(),
            "mesh": " x ".join(f"{name} {size}" for name, size in facts["mesh"].items()),
            "batch": batch,
            "steps": f"{run.steps:,}" + (f", from {self.step:,}" if self.step else ""),
        }

    def _memory(self) -> str:
        """How much memory a device needs, about, and what for."""
        return f"about {advice.human_bytes(self.memory['all'])} a device ({advice.breakdown(self.memory)})"

    def _store(self, folder: Path) -> checkpoint.Checkpoints:
        return checkpoint.Checkpoints(folder / folders.CHECKPOINTS, self.run.checkpoint.keep, goal=self.best.goal)

    def fit(self, folder: Path) -> bool:
        """Trains to `--steps`, or until patience runs out; False where `--stop-at`, Ctrl-C or SIGTERM ended it before, with all saved."""
        run = self.run
        stop = min(run.steps, run.stop_at or run.steps)
        store = self._store(folder)
        recorder = Recorder(self.log, distributed.output_dir(folder), self.step, run.steps)
        with (
            checkpoint.disk_errors(store.folder),
            contextlib.closing(store),
            contextlib.closing(recorder),
            advice.explain_oom(self._advice),
            jax.set_mesh(self.mesh),
            cpu.awake(self.mesh.local_devices),
            _interruptions() as interrupted,
        ):
            try:
                while self.step < stop and not self._called_off(interrupted) and not self.best.exhausted:
                    self._advance(recorder, store)
                self.window.settle()
                if store.latest != self.step:
                    self._save(store, None)
            except NotFiniteError as error:
                rows = self.corpus.rows(error.step - 1)[1].tolist()
                raise UserError(
                    f"the loss of step {error.step} is not finite (rows {rows} of the training text); the last good checkpoint is "
                    f"{store.latest or 'none'} in {folder}; lower --optim.rate or look at those rows"
                ) from error
        if len(self.shapes) > 1:
            self.log.info(f"the step was compiled for {len(self.shapes)} shapes of batches")
        if self.best.exhausted:
            self.log.info(self.best.farewell)
        return self.step == run.steps or self.best.exhausted

    def _called_off(self, interrupted: list[int]) -> bool:
        """Whether the run was interrupted; several processes agree on that before every log line, wherever the signal came."""
        if jax.process_count() == 1:
            return bool(interrupted)
        return self.step % self.run.log.every == 0 and distributed.any_process(bool(interrupted))

    def _advance(self, recorder: Recorder, store: checkpoint.Checkpoints):
        """One step, and what is due after it."""
        run = self.run
        batch = feed.to_devices(self.corpus.batch(self.step, self.share), self.spec, self.mesh, run.batch.accumulate)
        shape = tuple(field.shape for field in batch.values())
        with contextlib.nullcontext() if shape in self.shapes else recorder.clock.pause():
            self.state, sums = self.train_step(self.state, batch)
            self.step += 1
            self.window.add(self.step, sums)
            if shape not in self.shapes:
                self.window.settle()  # this step was compiled: the clock goes on when it is done
        recorder.tick(self.step, timed=shape in self.shapes)
        self.shapes.add(shape)
        if self.step % run.log.every == 0:
            self.window.settle()
            recorder.line("train", self.step, self._means(recorder.clock.lap()))
        if self.step % run.eval.every and self.step % run.checkpoint.every:
            return
        self.window.settle()
        with recorder.clock.pause():
            found = (
                None
                if self.step % run.eval.every
                else self.task.metrics(self.evaluate(run.eval.batches or 0)) | self._judged(final=False)
            )
            if found:
                recorder.line("eval", self.step, found)
            better = found is not None and self.best.see(self.step, found)
            if self.step % run.checkpoint.every == 0 or (better and run.eval.patience):
                self._save(store, found[self.best.name] if found else None)

    def _means(self, seconds: float) -> dict[str, float]:
        """Metrics of the steps since the last log line, which took `seconds` each."""
        sums = self.window.empty()
        means = self.task.metrics(sums)
        means |= {"rate": float(self.rate(self.step - 1)), "grad_norm": sums["grad_norm"] / sums["steps"]}
        if seconds:
            means |= {"tokens_per_s": self.corpus.tokens_per_step / seconds, "ms_per_step": 1000 * seconds}
            means |= {"mfu": self.flops / seconds / (self.peak * self.mesh.size)} if self.peak else {}
        return means

    def evaluate(self, most: int = 0) -> dict[str, Any]:
        """What the metrics of the validation text are made of."""
        return evaluate.measure(self.eval_step, self.state.eval_params, self.corpus, self.spec, self.mesh, most)

    def _judged(self, final: bool) -> dict[str, Any]:
        """What a task that writes finds out by writing: BLEU, of some of the validation text, or at the end of all."""
        most = getattr(self.run.task, "bleu", 0)
        if not hasattr(self.task, "generation_metrics") or not (most or final):
            return {}
        with self._alone() as params:
            found = self.task.generation_metrics(params, self.run, self.corpus, self.log, 0 if final else most)
        return found if final else {name: value for name, value in found.items() if isinstance(value, float)}

    @contextlib.contextmanager
    def _alone(self):
        """The parameters for what each process does on its own: all of them write the same texts, where one may not wait for another."""
        mesh = self.mesh if jax.process_count() == 1 else tfm.make_mesh(devices=jax.local_devices()[:1])
        params = distributed.to_local_device(self.state.eval_params)
        with jax.set_mesh(mesh):
            yield params

    def _save(self, store: checkpoint.Checkpoints, metric: float | None):
        store.save(self.step, self.state, {"window": self.window.sums, "best": self.best.note}, metric)

    def finish(self, folder: Path, seconds: float) -> dict[str, Any]:
        """The last evaluation, of the best weights where there is patience, written to result.json; and what the task shows."""
        found: dict[str, Any] = {}
        if self.run.eval.patience:
            best = checkpoint.load_params(folder, self.state.eval_params, self.log.info, best=True)
            self.state = dataclasses.replace(self.state, **{"params" if self.state.ema is None else "ema": best})
        if self.run.eval.final:
            with jax.set_mesh(self.mesh):
                outcomes = self.evaluate()
                metrics = self.task.metrics(outcomes) | self.task.baselines(self.corpus)
                found = {f"eval_{name}": value for name, value in metrics.items()} | self._judged(final=True)
                with self._alone() as params:
                    self.task.report(params, self.run, self.corpus, self.log, outcomes, distributed.output_dir(folder))
        facts = (self.run.task.name, self.step, round(seconds, 1), tfm.count_params(self.specs))
        result = dict(zip(FACTS, facts, strict=True)) | found
        folders.write_json(distributed.output_dir(folder) / folders.RESULT, result)
        return result


@contextlib.contextmanager
def _interruptions():
    """A list that is empty until Ctrl-C or SIGTERM; a second one of them acts as ever."""
    received: list[int] = []
    before: dict[int, Any] = {}

    def note(number, frame):
        received.append(number)
        for each, handler in before.items():
            signal.signal(each, handler)

    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, note)
    except ValueError:  # not the main thread, as in a notebook's worker: nothing to catch there
        before = {}
    try:
        yield received
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
