"""A training step that is run again with checks on: where its first values arise that are not finite."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

import tfm
from tfm.low_rank import with_dropout_keys
from tfm.params import PyTree
from train import UserError, sentence
from train.devices import distributed
from train.losses.loss import Extra, objective, scalar_sums
from train.runs import run_folder, saved
from train.runs.state import LossScale, State
from train.training import loss_scale, optimizer, startup, stochastic_rounding
from train.training.diverged import blackbox
from train.training.diverged.blackbox import StepBatch
from train.training.job import Job, batch_to_devices
from train.training.metric_buffer import NotFiniteError
from train.training.phases import PhaseJobs
from train.training.step import split_params


class Replay(NamedTuple):
    """What a step does when it is run again.

    origin: where the first value arises that is not finite, or None
    rows: the rows of the training text where it is so, as far as is known
    sums: loss, weight and the norm of the gradient
    sizes: for each scope of the forward pass, the root of the mean square of its result
    grad_norms, param_norms: by the name of the parameter
    broken: the parameters that its update makes not finite
    """

    origin: tfm.Origin | None
    rows: list[int]
    sums: dict[str, float]
    sizes: dict[str, float]
    grad_norms: dict[str, float]
    param_norms: dict[str, float]
    broken: list[str]

    @property
    def summary(self) -> str:
        """What was not finite, and where that begins."""
        rows = f", in rows {self.rows} of the training text" if self.rows else ""
        if self.origin:
            return f"{self.origin}{rows}"
        if self.broken:
            return f"its loss and gradient are finite, and its update makes {_names(self.broken)} not finite"
        return "all of it is finite when it is run again, so that a device or its memory may have failed"


def run_again(job: Job, batch: StepBatch, state: State) -> Replay:
    """Runs the step behind `state`, part by part, with checks on; without several processes."""
    loss = _loss(job)
    fields = batch_to_devices(job, batch.fields)
    parts = _parts(job, fields, state)
    keys = _dropout_keys(job, state, len(parts))
    with jax.set_mesh(job.mesh):
        trained, frozen = split_params(job.optimizer, state, jax.random.key(job.run.seed))
        runs = [tfm.run_by_scope(loss, trained, frozen, part, key) for part, key in zip(parts, keys, strict=True)]
        gradient = jax.grad(lambda *args: _scaled(state.scale, *loss(*args)))
        grads = [jax.jit(gradient)(trained, frozen, part, key) for part, key in zip(parts, keys, strict=True)]
        origins = [run.origin for run in runs]
        for index, (part, key) in enumerate(zip(parts, keys, strict=True)):
            if not any(origins) and tfm.names_not_finite(grads[index]):
                origins[index] = tfm.first_not_finite(gradient, trained, frozen, part, key)
        weights = [run.outputs[1]["weight"] for run in runs]
        grads = [loss_scale.unscaled(*part, state.scale) for part in zip(grads, weights, strict=True)]
        weight = max(sum(map(float, weights)), 1)
        total = jax.tree.map(lambda *leaves: sum(stochastic_rounding.widen(leaves)) / weight, *grads)
        grad_norm = float(optimizer.global_norm(total))
        broken = tfm.names_not_finite(_updated(job, state, fields).params) if not any(origins) else []
    index = next((index for index, origin in enumerate(origins) if origin), 0)
    sums = {name: float(sum(run.outputs[1][name] for run in runs)) for name in runs[0].outputs[1]}
    rows = _rows(origins[index], batch.rows.reshape(len(parts), -1)[index])
    return Replay(
        origin=origins[index],
        rows=rows,
        sums=sums | {"grad_norm": grad_norm},
        sizes=runs[index].sizes,
        grad_norms=_norms(total),
        param_norms=_norms(trained),
        broken=broken,
    )


def state_before(phases: PhaseJobs, folder: Path, step: int) -> State:
    """The state before a step: that of the newest checkpoint before it, and the steps since, run again.

    By the steps of a run on its own devices, it is bit for bit the state that the run had.
    """
    job, log = phases.job, phases.log
    settings = job.run.checkpoint
    checkpoints = saved.SavedCheckpoints(run_folder.checkpoints_of(folder, settings.folder), settings.verify)
    with jax.set_mesh(job.mesh):
        if any(saved_step < step for saved_step in checkpoints.steps):
            like = job.new_state()
            state, _, done = checkpoints.restore(like, log.info, before=step)
            log.info(f"checkpoint {done} of {folder}, and steps {done + 1} to {step - 1} run again")
        else:
            fresh = dataclasses.replace(job, run=dataclasses.replace(job.run, resume=False))
            state, done, _ = startup.first_state(fresh, phases.corpus, folder, log)
            log.info(f"the first state of {folder}, and steps 1 to {step - 1} run again")
        for n in range(done, step - 1):
            phase = phases.at_step(n)
            state, _ = phase.train_step.step(state, phase.batch(n))
    return state


def explain(phases: PhaseJobs, folder: Path, error: NotFiniteError) -> str:
    """Keeps a black box of a bad step, and says where in it values cease to be finite; a run of several processes does
    not look for that."""
    phase, log = phases.of_state(error.step), phases.log
    batch = blackbox.batch_of(phase.corpus, error.step)
    facts = {name: str(value) for name, value in error.values.items()} | {"parameters": error.names}
    box, batch_checksum = blackbox.begin(folder, batch)
    if distributed.is_main():
        box.write_report(batch, facts)
    log.info(f"step {error.step} is not finite; computing the state before it, and where that begins (Ctrl-C ends it)")
    state = state_before(phases, folder, error.step)
    try:
        box.write_state(state, batch, batch_checksum)
    except (UserError, OSError) as failure:
        log.info(f"{box.path} has no state: {sentence(failure)}")
    if jax.process_count() > 1:
        return f"in rows {batch.rows.tolist()} of the training text"
    replay = run_again(phase.job, batch, state)
    box.write_report(batch, facts | {"begins": replay.summary, "bad_rows": replay.rows})
    return replay.summary


def _loss(job: Job) -> Callable[..., tuple[jax.Array, dict[str, jax.Array]]]:
    """loss(trained, frozen, part, key) -> the sum to differentiate and all scalar sums."""

    def loss(trained, frozen, part, key):
        params = with_dropout_keys(job.optimizer.join(trained, frozen), key)
        fields, extra = part
        sums = scalar_sums(job.loss(params, fields, key, extra))
        return objective(sums), sums

    return loss


def _scaled(scale: LossScale | None, loss: jax.Array, sums: Mapping[str, jax.Array]) -> jax.Array:
    return loss_scale.scaled(loss, sums["weight"], scale)


def _parts(job: Job, batch: dict[str, jax.Array], state: State) -> list[tuple[dict[str, jax.Array], Extra]]:
    """The parts of a batch, and what the loss of each reads beside it."""

    def part(index: int) -> tuple[dict[str, jax.Array], Extra]:
        fields, memory = jax.tree.map(lambda leaf: leaf[index], (batch, state.memory))
        return fields, Extra(memory, state.teacher)

    return [part(index) for index in range(job.run.batch.accumulate)]


def _updated(job: Job, state: State, batch: Mapping[str, jax.Array]) -> State:
    """The state after the step; the state before it is copied, for a step donates it."""
    return job.train_step(jax.tree.map(jax.numpy.copy, state), batch)[0]


def _dropout_keys(job: Job, state: State, parts: int) -> list[jax.Array | None]:
    """The keys of the parts, as the training step draws them."""
    if not job.run.has_dropout:
        return [None] * parts
    key = jax.random.fold_in(jax.random.key(job.run.seed), state.step)
    return [key] if parts == 1 else list(jax.random.split(key, parts))


def _rows(origin: tfm.Origin | None, rows: np.ndarray) -> list[int]:
    """The rows of the text where a value is not finite; none where the first axis is not that of the batch."""
    if origin is None or not origin.shape or origin.shape[0] != len(rows):
        return []
    return rows[list(origin.rows)].tolist()


def _norms(tree: PyTree) -> dict[str, float]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): float(optimizer.global_norm(leaf))
        for path, leaf in leaves
    }


def _names(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
