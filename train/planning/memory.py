"""Bytes that a step needs on a device, estimated from shapes."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import cast

import jax
from jax.core import ShapedArray
from jax.extend.core import Jaxpr

import tfm
from tfm.low_rank import with_dropout_keys
from tfm.sharding import mesh_axes
from train.devices.mesh import bytes_per_device
from train.settings.schema import Run
from train.training.job import Job, extra_of, largest_batch, largest_part
from train.training.optimizer import Optimizer

# Share of a recomputed block's values that is in memory at a time; the rest is fused. M36: estimates within 9 %.
UNFUSED = 0.6


def step_memory(job: Job, part=None, program: Jaxpr | None = None) -> dict[str, float]:
    """About how many bytes a step needs on a device, by purpose, and "all" of them.

    `part` is one part of a batch (default: of the largest), and `program` its `forward_pass`, where that is at hand. To
    `loss_memory` it adds temporaries: gathered parameters under `fsdp`; and with remat, most of the values of one
    recomputed block and the parameters in the dtype of products, which compilers keep.
    """
    memory = job_loss_memory(job, program or forward_pass(job, part))
    if job.run.batch.accumulate > 1:
        memory["gradients"] *= 2  # the sum over the parts, and the gradients of one part
    temporaries = _gathered_parameters(job) if job.mesh.shape.get("fsdp", 1) > 1 else 0
    if job.run.model.remat != "none":
        kept = without_remat(job)
        block = job_loss_memory(kept, forward_pass(kept, part))["activations"] * _largest_block(job.run)
        temporaries += UNFUSED * block
        width = jax.numpy.dtype(job.run.model.dtype).itemsize / 4
        temporaries += width * memory["parameters"] if width < 1 else 0
    memory["temporaries"] = temporaries
    return {"all": sum(memory.values()), **memory}


def checkpoint_bytes(job: Job) -> int:
    """The bytes of the state that a checkpoint holds, of all devices together."""
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(job.state))


def _largest_block(run: Run) -> float:
    """The largest block's share of the activations of all blocks."""
    configs = [stage for tower in run.model.towers for stage in tower.stage_configs]
    tokens = [math.prod(stage.input.grid) if stage.input.grid else run.row_tokens for stage in configs]
    stages = [(stage.layers, count * stage.width) for stage, count in zip(configs, tokens, strict=True)]
    return max(size for _, size in stages) / sum(count * size for count, size in stages)


def forward_pass(job: Job, part=None) -> Jaxpr:
    """The loss of one part of a batch (default: of the largest) as a program that returns what its gradient reads."""
    key = jax.random.key(0) if job.run.has_dropout else None
    part = largest_part(job) if part is None else part

    def loss(params, inputs):
        fields, extra = inputs
        return job.loss(with_dropout_keys(params, key), fields, key, extra)["loss"]

    with jax.set_mesh(job.mesh):
        return residuals(job.state, loss, (part, extra_of(job)), job.optimizer)


def job_loss_memory(job: Job, program: Jaxpr) -> dict[str, float]:
    """`loss_memory` of the job's loss, without "all"; `program` is its forward pass."""
    memory = loss_memory(job.state, program, job.optimizer)
    del memory["all"]
    return memory


def without_remat(job: Job) -> Job:
    """The job with remat=none."""
    if job.run.model.remat == "none":
        return job
    model = dataclasses.replace(job.run.model, remat="none")
    return dataclasses.replace(job, run=dataclasses.replace(job.run, model=model))


def residuals(state, loss: Callable, batch, optimizer: Optimizer | None = None) -> Jaxpr:
    """The forward pass of `loss(params, batch)` as a program that returns what its gradient reads; arrays may be
    shapes. Without an optimizer everything is trained."""

    def forward(trained, frozen, batch):
        def trained_loss(trained):
            return loss(optimizer.join(trained, frozen) if optimizer else trained, batch)

        return jax.vjp(trained_loss, trained)[1]

    return jax.make_jaxpr(forward)(*_split(state, optimizer), batch).jaxpr


def _split(state, optimizer: Optimizer | None):
    """The parameters that are trained, and the rest."""
    return optimizer.split(state.params) if optimizer else (state.params, None)


def loss_memory(state, program: Jaxpr, optimizer: Optimizer | None = None) -> dict[str, float]:
    """Bytes on a device of state, gradients of what the optimizer trains, and the results of `residuals`.

    Activations are the values that the forward pass of the whole program leaves to the backward pass on the device. A
    compiler keeps fewer, or needs some for itself.
    """
    trained, _ = _split(state, optimizer)
    inputs = (*program.invars, *program.constvars)
    saved = {id(value): cast(ShapedArray, value.aval) for value in program.outvars if value not in inputs}
    on_device = [aval for aval in saved.values() if aval.memory_space != jax.memory.Space.Host]
    memory = {
        "parameters": bytes_per_device(jax.tree.leaves((state.params, state.ema))),
        "gradients": bytes_per_device(jax.tree.leaves(trained)),
        "optimizer": bytes_per_device(jax.tree.leaves(state.opt)),
        "segments": bytes_per_device(jax.tree.leaves(state.memory)),
        "teacher": bytes_per_device(jax.tree.leaves(state.teacher)),
        "activations": bytes_per_device(on_device),
    }
    return {"all": sum(memory.values()), **memory}


def _gathered_parameters(job: Job) -> float:
    """Bytes that a device gathers along `fsdp` at a time.

    These are one layer and its gradient in the dtype of products; and the largest table and two gradients of it, from
    lookup and from logits, in float32.
    """
    width = jax.numpy.dtype(job.run.model.dtype).itemsize
    layer = 0.0
    table = 0.0
    shardings = jax.tree.leaves(tfm.shardings(job.specs, job.mesh))
    for spec, sharding in zip(jax.tree.leaves(job.specs), shardings, strict=True):
        remaining = [name for name in mesh_axes(sharding.spec) if name != "fsdp"]
        size = math.prod(spec.shape) / math.prod(job.mesh.shape[name] for name in remaining)
        if spec.axes.startswith("L"):
            layer += size / spec.shape[0]
        else:
            table = max(table, size)
    return 2 * width * layer + 3 * 4 * table


def compiled_memory(compiled, estimate: Mapping[str, float], job: Job) -> dict[str, float]:
    """The bytes that the compiled step needs on a device, by purpose.

    The compiler tells arguments from the rest. The estimate divides the rest into gradients and activations.
    """
    exact = {name: estimate[name] for name in ("parameters", "optimizer", "segments")}
    batch = bytes_per_device(jax.tree.leaves(largest_batch(job)))
    rest = compiled.temp_size_in_bytes + compiled.output_size_in_bytes - compiled.alias_size_in_bytes
    gradients = min(rest, estimate["gradients"])
    activations = min(rest - gradients, estimate["activations"])
    return {
        "all": compiled.argument_size_in_bytes + rest,
        **exact,
        "padding": max(0, compiled.argument_size_in_bytes - sum(exact.values()) - batch),
        "gradients": gradients,
        "activations": activations,
        "temporaries": batch + rest - gradients - activations,
    }
