"""The training loop: steps, log lines, evaluations and checkpoints, until the end or an interruption."""

import contextlib
import dataclasses
import math
import os
import signal
from pathlib import Path
from typing import Any

import jax

import tfm
from train import UserError, checkpoint, config, evaluate, handover, hardware, optim, step
from train import run as folders
from train.best import Best
from train.data import feed
from train.log import Log, Recorder
from train.window import NotFiniteError, Window


def use_cores(rows: int, *sizes: int):
    """On a CPU, one virtual device a core, if nobody has set their number.

    A step of bert-tiny (16 x 64 tokens, 2 cores) takes 0.80 of the time that one device with two threads needs.
    """
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "") or jax.config.jax_num_cpu_devices != -1:  # type: ignore[attr-defined]
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(RuntimeError):  # a backend runs already, in a notebook
        jax.config.update("jax_num_cpu_devices", devices_for(cores, rows, *sizes))


def devices_for(cores: int, rows: int, *sizes: int) -> int:
    """As many devices as the mesh sizes ask for, or, where one is -1, as have 4 rows of the batch each or more; one a core at most."""
    if -1 not in sizes:
        return max(1, min(cores, math.prod(sizes)))
    return max((n for n in range(1, cores + 1) if rows % n == 0 and rows // n >= 4), default=1)


def arrange(run: config.Run, specs):
    """The mesh that the run asks for. Raises UserError where the devices, the batch or a parameter do not divide."""
    try:
        mesh = tfm.make_mesh(run.mesh.data, run.mesh.fsdp, run.mesh.tensor)
        tfm.shardings(specs, mesh)
        tfm.partition("B", (run.batch.size // run.batch.accumulate,), mesh)
    except ValueError as error:
        raise UserError(f"--{error}") from error
    return mesh


class Training:
    """One run under way."""

    def __init__(self, run: config.Run, task, corpus, mesh, log: Log):
        self.run, self.task, self.corpus, self.mesh, self.log = run, task, corpus, mesh, log
        self.specs = task.specs(run)
        loss = lambda params, batch, key: task.loss(params, run.model, batch, key)
        optimizer = optim.optimizer(run.optim, run.steps, self.specs)
        self.rate = optim.schedule(run.optim, run.steps)
        self.state = step.new_state(self.specs, optimizer, run.seed, mesh, run.optim.ema)
        self.train_step = step.make_train_step(loss, optimizer, run.seed, run.model.dropout > 0, run.optim.ema)
        self.eval_step = step.make_eval_step(loss)
        self.window, self.step, self.best = Window(), 0, Best(task.GOALS, run.eval)
        self.memory, self.flops = self._costs(loss)
        self.peak = hardware.peak(jax.devices()[0].device_kind) if run.model.dtype == "bfloat16" else None

    def _costs(self, loss) -> tuple[dict[str, float], int]:
        """Bytes that a device needs, by what for, and floating-point operations of a step: twice as many backward as forward."""
        run = self.run
        key = jax.random.key(0) if run.model.dropout else None
        with jax.set_mesh(self.mesh):
            part = jax.tree.map(lambda field: field[0], feed.put(self.corpus.batch(0), self.mesh, run.batch.accumulate))
            memory = hardware.memory(self.state, lambda params, batch: loss(params, batch, key)["loss"], part)
            return memory, 3 * run.batch.accumulate * hardware.flops(loss, self.state.params, part, key)

    def start_from(self, folder: Path):
        """Takes the state of the run to resume, or the weights of `--init`; else the fresh state stays."""
        run = self.run
        if run.resume:
            store = self._store(folder)
            if store.latest is None:
                self.log.say(f"{folder} holds no checkpoint yet; starting at step 0")
            else:
                self.state, note, self.step = store.restore(self.state, self.log.say)
                self.window, self.best.note = Window(note["window"]), note["best"]
                self.log.say(f"going on from step {self.step} of {folder}")
            store.close()
        elif run.init:
            params, fresh = handover.parts_of(run.init, self.state.params, self.mesh, self.log.say)
            if fresh:
                self.log.say(f"taken from {run.init}: its weights; what it lacks starts fresh: {', '.join(fresh)}")
            average = None if self.state.ema is None else jax.tree.map(jax.numpy.copy, params)
            self.state = dataclasses.replace(self.state, params=params, ema=average)

    def facts(self) -> dict[str, Any]:
        """What run.json records beside the configuration."""
        devices = jax.devices()
        return {
            "data": self.corpus.facts(),
            "devices": f"{len(devices)} x {devices[0].device_kind}",
            "mesh": {name: int(size) for name, size in self.mesh.shape.items()},
            "params": tfm.count(self.specs),
        }

    def overview(self) -> dict[str, str]:
        """The start-up table."""
        run, facts = self.run, self.facts()
        batch = f"{run.batch.size} x {run.batch.length} tokens" + (f" in {run.batch.accumulate} parts" if run.batch.accumulate > 1 else "")
        return {
            "parameters": f"{facts['params']:,}",
            **self.corpus.overview(),
            "devices": facts["devices"] + f", {run.model.dtype}",
            "memory": self._memory(),
            "mesh": " x ".join(f"{name} {size}" for name, size in facts["mesh"].items()),
            "batch": batch,
            "steps": f"{run.steps:,}" + (f", from {self.step:,}" if self.step else ""),
        }

    def _memory(self) -> str:
        """How much memory a device needs, about, and what for."""
        size = lambda name: f"{self.memory[name] / 1e9:.1f} GB" if self.memory[name] >= 1e9 else f"{self.memory[name] / 1e6:.0f} MB"
        parts = (f"{name} {size(name)}" for name in self.memory if name != "all")
        return f"about {size('all')} a device ({', '.join(parts)})"

    def _store(self, folder: Path) -> checkpoint.Checkpoints:
        return checkpoint.Checkpoints(folder / folders.CHECKPOINTS, self.run.checkpoint.keep, goal=self.best.goal)

    def fit(self, folder: Path) -> bool:
        """Trains to `--steps`, or until patience runs out; False where `--stop-at`, Ctrl-C or SIGTERM ended it before, with all saved."""
        run = self.run
        stop = min(run.steps, run.stop_at or run.steps)
        store = self._store(folder)
        recorder = Recorder(self.log, folder, self.step, run.steps)
        with (
            checkpoint.disk_errors(store.folder),
            contextlib.closing(store),
            contextlib.closing(recorder),
            jax.set_mesh(self.mesh),
            _interruptions() as interrupted,
        ):
            try:
                while self.step < stop and not interrupted and not self.best.exhausted:
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
        if self.best.exhausted:
            self.log.say(self.best.farewell)
        return self.step == run.steps or self.best.exhausted

    def _advance(self, recorder: Recorder, store: checkpoint.Checkpoints):
        """One step, and what is due after it."""
        run = self.run
        batch = feed.put(self.corpus.batch(self.step), self.mesh, run.batch.accumulate)
        self.state, sums = self.train_step(self.state, batch)
        self.step += 1
        self.window.add(self.step, sums)
        if not recorder.clock.running:
            self.window.settle()  # the first step compiles: the clock starts when it is done
        recorder.tick(self.step)
        if self.step % run.log.every == 0:
            self.window.settle()
            recorder.line("train", self.step, self._means(recorder.clock.lap()))
        if self.step % run.eval.every and self.step % run.checkpoint.every:
            return
        self.window.settle()
        with recorder.clock.pause():
            found = None if self.step % run.eval.every else self.task.metrics(self.evaluate(run.eval.batches))
            if found:
                recorder.line("eval", self.step, found)
            better = found is not None and self.best.see(self.step, found)
            if self.step % run.checkpoint.every == 0 or (better and run.eval.patience):
                self._save(store, found[self.best.name] if found else None)

    def _means(self, seconds: float) -> dict[str, float]:
        """Metrics of the steps since the last log line, which took `seconds` each."""
        sums, run = self.window.empty(), self.run
        means = self.task.metrics(sums)
        means |= {"rate": float(self.rate(self.step - 1)), "grad_norm": sums["grad_norm"] / sums["steps"]}
        if seconds:
            means |= {"tokens_per_s": run.batch.size * run.batch.length / seconds, "ms_per_step": 1000 * seconds}
            means |= {"mfu": self.flops / seconds / (self.peak * self.mesh.size)} if self.peak else {}
        return means

    def evaluate(self, most: int = 0) -> dict[str, Any]:
        """What the metrics of the validation text are made of."""
        return evaluate.measure(self.eval_step, self.state.best_params, self.corpus, self.mesh, most)

    def _save(self, store: checkpoint.Checkpoints, metric: float | None):
        store.save(self.step, self.state, {"window": self.window.sums, "best": self.best.note}, metric)

    def finish(self, folder: Path, seconds: float) -> dict[str, Any]:
        """The last evaluation, of the best weights where there is patience, written to result.json; and what the task shows."""
        found: dict[str, Any] = {}
        if self.run.eval.patience:
            best = checkpoint.load_params(folder, self.state.best_params, self.log.say, best=True)
            self.state = dataclasses.replace(self.state, **{"params" if self.state.ema is None else "ema": best})
        if self.run.eval.final:
            with jax.set_mesh(self.mesh):
                outcomes = self.evaluate()
                metrics = self.task.metrics(outcomes) | self.task.baselines(self.corpus)
                self.task.show(self.state.best_params, self.run, self.corpus, self.log, outcomes, folder)
            found = {f"eval_{name}": value for name, value in metrics.items()}
        facts = {"task": self.run.task.name, "steps": self.step, "seconds": round(seconds, 1), "params": tfm.count(self.specs)}
        result = facts | found
        folders.write_json(folder / folders.RESULT, result)
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
