"""Whether a model of another width starts and learns alike, as `--optim.base-width` promises: the coordinate check."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from train.lab.check.result import Result, not_applicable
from train.lab.check.subject import Subject
from train.runs.maximal_update import at_width
from train.screens.plots import panels
from train.training import step
from train.training.job import Job
from train.training.layer_norms import named_states

# Widths over the base width, steps of each model, and how fast sizes may grow: the slope of their logarithm.
_GROWTHS, _STEPS, _SLOPE = (1, 2, 4, 8), 4, 0.2


def activations_of_widths(subject: Subject) -> Result:
    """With `--optim.base-width`, what layers read and add has one size at all widths, at the start and after steps.

    Yang et al. 2022, appendix D.1: the slope of the logarithm of mean sizes against that of widths.
    """
    base = subject.job.run.optim.base_width
    if base is None:
        return not_applicable("--optim.base-width is not set")
    widths = [base * growth for growth in _GROWTHS]
    sizes = np.array([_sizes(subject, width) for width in widths])  # [widths, start and end, states]
    slopes = np.polyfit(np.log(widths), np.log(sizes.reshape(len(widths), -1)), 1)[0].reshape(sizes.shape[1:])
    if subject.picture is not None:
        _draw(widths, sizes, subject.picture)
    detail = (
        f"slope of log mean sizes of {slopes.shape[1]} states and branches over widths {widths[0]} to {widths[-1]}: "
        f"{slopes[0].min():+.2f} to {slopes[0].max():+.2f} at the start, {slopes[1].min():+.2f} to "
        f"{slopes[1].max():+.2f} after {_STEPS} steps"
    )
    return Result(float(np.abs(slopes.mean(1)).max()), _SLOPE, detail)


def _sizes(subject: Subject, width: int) -> list[list[float]]:
    """Mean sizes of what blocks read and add in a model of this width, at its start and after steps on one batch."""
    run = subject.job.run
    model = dataclasses.replace(at_width(run.model, width), scan=False, remat="none", dropout=0.0)
    optim = dataclasses.replace(run.optim, warmup=0.0, schedule="constant", ema=None)
    job = dataclasses.replace(subject.job, run=dataclasses.replace(run, model=model, optim=optim, steps=_STEPS))
    batch, measure = subject.on_mesh(subject.batch), jax.jit(lambda params, fields: _of_states(job, params, fields))
    with jax.set_mesh(job.mesh):
        state = step.new_state(job.specs, job.optimizer, run.seed, job.mesh)
        fields = jax.tree.map(lambda leaf: leaf[0], batch)
        sizes = [jax.device_get(measure(state.params, fields))]
        for _ in range(_STEPS):
            state, _ = job.train_step(state, batch)
        sizes.append(jax.device_get(measure(state.params, fields)))
    return [[float(size) for size in of_step] for of_step in sizes]


def _of_states(job: Job, params, fields) -> list[jax.Array]:
    """The mean size of what each block reads and each sublayer adds, float32."""
    states = named_states(lambda: job.loss(params, fields, None)["loss"])
    return [jnp.abs(value.astype(jnp.float32)).mean() for _, value in states]


def _draw(widths: Sequence[int], sizes: np.ndarray, path: Path):
    """A panel for the start and one for the end: a line for each state and branch."""
    titles = "start", f"after {_STEPS} steps"
    limits = sizes.min() / 2, sizes.max() * 2
    with panels(path, (9, 4), 2) as all_axes:
        for axes, title, of_step in zip(all_axes, titles, sizes.swapaxes(0, 1), strict=True):
            axes.plot(widths, of_step, "o-", markersize=3)
            axes.set(title=title, xlabel="width", ylabel="mean size of a state or branch", yscale="log", ylim=limits)
            axes.set_xscale("log", base=2)
            axes.set_xticks(widths, [str(width) for width in widths])
            axes.grid(alpha=0.3)
