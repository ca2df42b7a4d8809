"""Floating-point operations and attention kernels of a program, counted in what JAX traces."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
from jax.extend import core

from train.training.job import Job, largest_batch, largest_part


def model_flops(job: Job, part=None) -> int:
    """Floating-point operations that the model needs for a step, on all devices: three times those of the forward pass.

    They do not depend on the kernel of attention or on recomputation. `part` is one part of a batch (default: of the
    largest). The F of MFU (Chowdhery et al. 2022, appendix B).
    """
    model = dataclasses.replace(job.run.model, kernel="einsum")

    def loss(params, batch):
        return job.task.loss(params, model, batch, None)

    with jax.set_mesh(job.mesh):
        forward = flops(loss, job.state.params, largest_part(job) if part is None else part)
    return 3 * job.run.batch.accumulate * forward


def hardware_flops(job: Job) -> int:
    """Floating-point operations that the step performs, on all devices, with all that it recomputes."""
    step = job.train_step.__wrapped__  # a function that is jitted with compiler options cannot be traced inside another
    with jax.set_mesh(job.mesh):
        return flops(step, job.state, largest_batch(job))


def flops(f: Callable, *arguments: Any) -> int:
    """Floating-point operations of the matrix products in `f(*arguments)`: two for each multiplication.

    Arguments may be shapes. A scanned layer counts as often as it runs, and a product on several devices on each.
    """
    return _flops(jax.make_jaxpr(f)(*arguments).jaxpr)


def _flops(jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(shape[axis] for axis in contracted)
        count = _RUNS.get(equation.primitive.name, lambda params: 1)(equation.params)
        total += count * sum(_flops(inner) for inner in core.jaxprs_in_params(equation.params))
    return total


# How often a primitive runs its inner programs; a kernel once for each block of its grid, skipped blocks included.
_RUNS: dict[str, Callable[[Mapping[str, Any]], int]] = {
    "scan": lambda params: params["length"],
    "shard_map": lambda params: params["mesh"].size,
    "pallas_call": lambda params: math.prod(params["grid_mapping"].grid),
}


def kernels(f: Callable, *arguments: Any) -> list[str]:
    """The attention kernels in `f(*arguments)` and the reasons for them, without repetition.

    `tfm` writes them into the program as name scopes: `attention[einsum: few scores]`.
    """
    return list(dict.fromkeys(_kernels(jax.make_jaxpr(f)(*arguments).jaxpr)))


def _kernels(jaxpr) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield from re.findall(r"attention\[(.*?)\]", str(equation.source_info.name_stack))
        for inner in core.jaxprs_in_params(equation.params):
            yield from _kernels(inner)
