"""Probes of the training step: that it is the same however it is computed, and that it learns."""

import dataclasses
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

import tfm
from tfm.layers.stack import layer_indices
from tfm.models.encoder import Encoder
from tfm.params import PyTree
from train.data import text_rows
from train.lab.check.result import Result, not_applicable, relative
from train.lab.check.subject import Subject
from train.runs import checkpoint, run_folder
from train.screens.console import Log
from train.settings.tuning import All
from train.training import startup, step
from train.training.early_stopping import EarlyStopping
from train.training.metric_buffer import MetricBuffer
from train.training.progress import Progress

# Steps before the stop of a run that is resumed, and after it.
_STEPS = 2

# Steps in which a batch is learned by heart, and the share of its first loss that must be left then.
_OVERFIT_STEPS, _REST = 200, 0.3

# The largest gradient of a layer over the smallest one.
_SPREAD = 1000.0


def scan_is_unrolled(subject: Subject) -> Result:
    """Scanned over layers, and with a program of its own for every layer, the gradient is the same."""
    model = subject.job.model
    if model.layer_plan.times < 2:
        return not_applicable("no layer is repeated")
    gradient, _ = subject.gradient(subject.batch, model=dataclasses.replace(model, scan=not model.scan))
    return _same_gradient(subject, gradient, subject.plain_gradient[0], "gradient with and without --model.scan")


def devices_are_one(subject: Subject) -> Result:
    """On the mesh and on one device the gradient is the same."""
    mesh = subject.job.mesh
    if mesh.size == 1:
        return not_applicable("there is one device")
    single = tfm.make_mesh(devices=mesh.devices.flatten()[:1])
    gradient, _ = subject.gradient(subject.batch, mesh=single)
    shape = " x ".join(f"{name} {size}" for name, size in mesh.shape.items() if size > 1)
    return _same_gradient(subject, gradient, subject.plain_gradient[0], f"gradient on {shape} and on one device")


def accumulation_is_one_batch(subject: Subject) -> Result:
    """In two parts, the second with hardly a target, the gradient is that of one batch; twice the weights change
    nothing."""
    batch = dict(subject.batch)
    for name, field in subject.spec.items():
        if field.weighs:
            batch[name] = batch[name].copy()
            batch[name][len(batch[name]) // 2 + 1 :] = 0
    doubled = {name: 2 * batch[name] for name in subject.weights}
    expected, _ = subject.gradient(batch)
    gradient, _ = subject.gradient({**batch, **doubled}, parts=2)
    return _same_gradient(subject, gradient, expected, "gradient in two unequal parts and in one")


def packed_is_padded(subject: Subject) -> Result:
    """Texts that share rows have the gradient, and the loss, of texts of which each has a row."""
    if len(subject.batch.get("rows", ())) <= subject.rows:
        return not_applicable("no text shares a row with another")
    names, longest = subject.corpus.train[0].text_fields, subject.job.run.batch.length
    alone = text_rows.separated(subject.batch, names, longest, subject.texts)
    (gradient, sums), (expected, expected_sums) = subject.plain_gradient, subject.gradient(alone)
    difference = relative(abs(sums["loss"] - expected_sums["loss"]), expected_sums["loss"])
    detail = f"loss, and gradient of {int(sums['weight'])} targets, of texts in shared rows and in rows of their own"
    return Result(max(difference, _difference(gradient, expected)), 10 * subject.precision, detail)


def _same_gradient(subject: Subject, gradient: PyTree, expected: PyTree, detail: str) -> Result:
    """The difference of two gradients, which have ten times the rounding errors of losses."""
    return Result(_difference(gradient, expected), 10 * subject.precision, f"{detail}, over its largest element")


def _difference(gradient: PyTree, expected: PyTree) -> float:
    """The largest difference of two trees, relative to the largest element of each array.

    Arrays with next to no gradient count in parts of a hundredth of the largest element of all: rounding errors are
    about a millionth of that one.
    """
    leaves = [np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(expected)]
    floor = 1e-2 * max(float(np.abs(leaf).max(initial=0)) for leaf in leaves)
    differences = [
        relative(float(np.abs(np.asarray(actual, np.float32) - leaf).max()), max(floor, float(np.abs(leaf).max())))
        for actual, leaf in zip(jax.tree.leaves(gradient), leaves, strict=True)
    ]
    return float(np.max(differences))  # keeps NaN


def gradients_of_layers(subject: Subject) -> Result:
    """The gradient is finite, no part of the model is without one, and no layer has much more than another."""
    squares: dict[str, float] = {}
    for name, array in _by_layer(subject):
        total = float(np.square(np.asarray(array, np.float64)).sum())
        squares[name] = squares.get(name, 0.0) + total
    norms = {name: math.sqrt(total) for name, total in squares.items()}
    broken = [name for name, norm in norms.items() if not (math.isfinite(norm) and norm > 0)]
    if broken:
        name = broken[0]
        return Result(math.inf, _SPREAD, f"the norm of {name} is {norms[name]}")
    layers = {name: norm for name, norm in norms.items() if " layer " in name} or norms
    largest, smallest = max(layers, key=layers.__getitem__), min(layers, key=layers.__getitem__)
    detail = f"norm of {largest}, {norms[largest]:.2g}, over that of {smallest}, {norms[smallest]:.2g}"
    return Result(norms[largest] / norms[smallest], _SPREAD, detail)


def _by_layer(subject: Subject) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of the gradient of all losses, those of stacked layers apart, with the names of their layers or
    heads."""
    specs = subject.job.specs
    for path, leaf in jax.tree_util.tree_leaves_with_path(subject.gradient(subject.training_batch(0))[0]):
        words = jax.tree_util.keystr(path, simple=True, separator=".").split(".")
        stack = getattr(specs, words[0])
        if isinstance(stack, Encoder) and words[1] == "stages":
            stack, words = stack.stages[int(words[2])], [f"{words[0]} stage {int(words[2]) + 2}", *words[3:]]
        if not isinstance(stack, Encoder) or words[1] != "layers":
            yield ".".join(words[: 2 if isinstance(stack, Encoder) else 1]), leaf
            continue
        layers = layer_indices(stack.layers)[words[2]][int(words[3])]
        for layer, row in zip(layers, leaf if words[2] == "period" else [leaf], strict=True):
            yield f"{words[0]} layer {layer}", row


def overfits_a_batch(subject: Subject) -> Result:
    """A fresh copy of the model learns a few rows by heart: without dropout, all of it at a rate for its width."""
    run = subject.job.run
    model = dataclasses.replace(run.model, dropout=0.0, attn_dropout=None, ffn_dropout=0.0, drop_path=0.0)
    rate = min(2e-3, 0.256 / run.model.width)
    optim = dataclasses.replace(run.optim, rate=rate, warmup=0.1, schedule="constant", decay=0.0, ema=None)
    run = dataclasses.replace(run, model=model, optim=optim, steps=_OVERFIT_STEPS, tune=All())
    job = dataclasses.replace(subject.job, run=run)
    batch, losses = subject.on_mesh(subject.batch), []
    with jax.set_mesh(job.mesh):
        state = step.new_state(job.specs, job.optimizer, run.seed, job.mesh)
        for _ in range(_OVERFIT_STEPS):
            state, sums = job.train_step(state, batch)
            losses.append(float(sums["loss"] / sums["weight"]))
            if losses[-1] <= 0.9 * _REST * losses[0]:
                break
    detail = f"share of the first loss, {losses[0]:.3f}, after {len(losses)} steps on {subject.rows} rows"
    return Result(relative(losses[-1], losses[0]), _REST, detail)


def resumed_is_unstopped(subject: Subject) -> Result:
    """A run that is saved, and resumed from its checkpoint, has bit for bit the state of a run that never stopped."""
    run, quiet = subject.job.run, Log(quiet=True)
    batch = dataclasses.replace(run.batch, size=subject.rows, accumulate=1)
    settings = dataclasses.replace(run.checkpoint, folder="")
    job = dataclasses.replace(subject.job, run=dataclasses.replace(run, batch=batch, checkpoint=settings))
    resumed_job = dataclasses.replace(job, run=dataclasses.replace(job.run, resume=True))
    batches = _equal_batches(subject)
    with tempfile.TemporaryDirectory(prefix="tfm-check-") as name, jax.set_mesh(job.mesh):
        folder = Path(name)
        state = job.new_state()
        for n in batches[:_STEPS]:
            state, _ = job.train_step(state, subject.on_mesh(subject.training_batch(n)))
        progress = Progress(MetricBuffer(), EarlyStopping(job.task.goals, job.run.eval))
        store = checkpoint.Checkpoints(folder / run_folder.CHECKPOINTS, goal=progress.stopping.goal)
        store.save(_STEPS, state, progress.state(), None)
        store.close()
        resumed, done, _ = startup.first_state(resumed_job, subject.corpus, folder, quiet)
        for n in batches[_STEPS:]:
            state, _ = job.train_step(state, subject.on_mesh(subject.training_batch(n)))
        for n in batches[done:]:
            resumed, _ = job.train_step(resumed, subject.on_mesh(subject.training_batch(n)))
        pairs = list(zip(*map(jax.tree.leaves, jax.device_get((state, resumed))), strict=True))
    changed = sum(np.asarray(a).tobytes() != np.asarray(b).tobytes() for a, b in pairs)
    return Result(changed, 0, f"arrays of {len(pairs)} that differ {_STEPS} steps after a stop")


def _equal_batches(subject: Subject) -> list[int]:
    """The first training batches of one shape, so that the step is compiled once."""
    first = subject.training_batch(0)
    shapes = {name: array.shape for name, array in first.items()}
    batches = []
    for n in range(100):
        if {name: array.shape for name, array in subject.training_batch(n).items()} == shapes:
            batches.append(n)
        if len(batches) == 2 * _STEPS:
            break
    return batches


PROBES = (
    scan_is_unrolled,
    devices_are_one,
    accumulation_is_one_batch,
    packed_is_padded,
    gradients_of_layers,
    overfits_a_batch,
    resumed_is_unstopped,
)
