"""What a run costs before it runs, from shapes alone: memory, floating-point operations and what is read and written."""

import dataclasses
import math
from functools import cached_property
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

import tfm
from tfm.sharding import mesh_axes
from train.costs import counting
from train.data import feed
from train.data.fields import BatchSpec
from train.settings.schema import Run
from train.training import optimizer, step

# Share of a recomputed block's values that is in memory at a time; the rest is fused. M36: estimates within 9 %.
UNFUSED = 0.6


@dataclasses.dataclass(frozen=True)
class Job:
    """A run of a task on the devices of a mesh, which may be absent."""

    run: Run
    task: Any
    mesh: Any

    @cached_property
    def specs(self):
        """The parameters, as declared."""
        return self.task.specs(self.run)

    @cached_property
    def optimizer(self):
        """The optimizer."""
        return optimizer.optimizer(self.run.optim, self.run.steps, self.specs)

    @cached_property
    def state(self) -> step.State:
        """Shapes and shardings of what a step changes."""
        return step.abstract_state(self.specs, self.optimizer, self.mesh, self.run.optim.ema)

    @cached_property
    def spec(self) -> BatchSpec:
        """The fields of a batch, as declared."""
        return self.task.batch_spec(self.run)

    @property
    def token_fields(self) -> list[str]:
        """The fields whose places are the tokens of a batch."""
        return [name for name, field in self.spec.items() if field.counts_tokens]

    @cached_property
    def batch(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and shardings of the fields [parts, rows, ...] of the largest batch."""
        batch = self.run.batch
        rows = batch.unit * max(1, batch.tokens // batch.length // batch.unit)
        return {
            name: feed.layout(field, field.shape(rows, batch.length), self.mesh, batch.accumulate)
            for name, field in self.spec.items()
        }

    @property
    def part(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The same of the fields [rows, ...] of one part of it."""
        place = lambda field: NamedSharding(self.mesh, PartitionSpec(*field.sharding.spec[1:]))
        return {
            name: jax.ShapeDtypeStruct(field.shape[1:], field.dtype, sharding=place(field))
            for name, field in self.batch.items()
        }

    @property
    def tokens(self) -> int:
        """Places of a batch, of sources and of targets."""
        return sum(math.prod(self.batch[name].shape) for name in self.token_fields)

    @cached_property
    def train_step(self):
        """The step that the trainer runs."""
        run = self.run
        model = dataclasses.replace(run.model, kernel=run.attention.kernel)
        options = step.compiler_options(self.mesh.devices.flat[0].platform, self.largest)
        dropout = run.model.dropout > 0
        return step.make_train_step(self.task.loss, model, self.optimizer, run.seed, dropout, run.optim.ema, options)

    @property
    def largest(self) -> int:
        """About the bytes of the largest array that a device makes in a step: what is widest of its tokens (which have as many bytes as a
        float32 number), or a gradient."""
        wide = max(self.run.model.sizes[axis] for axis in "DF")
        tokens = max(counting.bytes_of([self.part[name]]) for name in self.token_fields)
        return max(wide * tokens, *(counting.bytes_of([leaf]) for leaf in jax.tree.leaves(self.state.params)))

    @property
    def loss(self):
        """The loss that the trainer takes the gradient of, (parameters, batch, key) -> sums."""
        return self.loss_by(self.run.attention.kernel)

    def loss_by(self, kernel: str):
        """The same, where a kernel computes attention."""
        model = dataclasses.replace(self.run.model, kernel=kernel)
        return lambda params, batch, key: self.task.loss(params, model, batch, key)

    def memory(self, state=None, part=None) -> dict[str, float]:
        """About how many bytes a device needs, by what for (`hardware.memory`), of this state and part of a batch where they are given.

        To what is kept for the backward pass comes what is needed for a moment: where parameters are in pieces, some of them whole; and
        where blocks are recomputed, most of what one of them makes, and the parameters in the dtype of products, which compilers keep.
        """
        state, part = self.state if state is None else state, self.part if part is None else part
        found = self._kept(state, part)
        layers = self.run.model.layers
        if self.run.batch.accumulate > 1:
            found["gradients"] *= 2  # the sum, and what is added to it
        moment = self._gathered() if self.mesh.shape.get("fsdp", 1) > 1 else 0
        if self.run.model.remat != "none":
            share = jax.numpy.dtype(self.run.model.dtype).itemsize / 4
            moment += UNFUSED * self._unabridged._kept(state, part)["activations"] / layers
            moment += share * found["parameters"] if share < 1 else 0
        found["temporaries"] = moment
        return {"all": sum(found.values()), **found}

    def _kept(self, state, part) -> dict[str, float]:
        """`hardware.memory` of the loss, without the sum."""
        key = (lambda: jax.random.key(0)) if self.run.model.dropout else lambda: None
        with jax.set_mesh(self.mesh):
            found = counting.memory(state, lambda params, batch: self.loss(params, batch, key())["loss"], part)
        return {name: size for name, size in found.items() if name != "all"}

    @cached_property
    def _unabridged(self) -> "Job":
        """The same job with nothing recomputed."""
        model = dataclasses.replace(self.run.model, remat="none")
        return Job(dataclasses.replace(self.run, model=model), self.task, self.mesh)

    def _gathered(self) -> float:
        """Bytes of what a device has whole along `fsdp` for a moment: a layer and its gradient, in the dtype of products; and the largest
        table and two gradients of it, of its reading and its writing, in float32."""
        width, layer, table = jax.numpy.dtype(self.run.model.dtype).itemsize, 0.0, 0.0
        for spec, sharding in zip(
            jax.tree.leaves(self.specs), jax.tree.leaves(tfm.shardings(self.specs, self.mesh)), strict=True
        ):
            others = [name for name in mesh_axes(sharding.spec) if name != "fsdp"]
            whole = math.prod(spec.shape) / math.prod(self.mesh.shape[name] for name in others)
            if spec.axes.startswith("L"):
                layer += whole / spec.shape[0]
            else:
                table = max(table, whole)
        return 2 * width * layer + 3 * 4 * table

    def model_flops(self, part=None) -> int:
        """Floating-point operations of a step on all devices that the model asks for, whatever the kernel and what is recomputed, twice as
        many backward as forward; of this part of a batch where it is given."""
        with jax.set_mesh(self.mesh):
            forward = counting.flops(
                self.loss_by("einsum"), self.state.params, self.part if part is None else part, None
            )
        return 3 * self.run.batch.accumulate * forward

    def flops(self) -> tuple[int, int]:
        """Those, and those that the step makes, with what it computes a second time."""
        with jax.set_mesh(self.mesh):
            function = self.train_step.__wrapped__  # compiled with options, it can be no part of another program
            return self.model_flops(), counting.flops(function, self.state, self.batch)

    def traffic(self) -> float:
        """About how many bytes a step moves between a device and its memory.

        State and gradients are read and written once; for each part of the batch the layers are read by three products, and activations
        written once and read once. What is recomputed counts once more.
        """
        kept = self._unabridged._kept(self.state, self.part)
        again = self.run.model.remat != "none"
        layers = jax.tree.leaves(self.specs)
        share = sum(math.prod(spec.shape) for spec in layers) / self.mesh.shape.get("tensor", 1)
        weights = share * jax.numpy.dtype(self.run.model.dtype).itemsize
        state = 2 * (kept["parameters"] + kept["optimizer"] + kept["gradients"])
        return state + self.run.batch.accumulate * ((3 + again) * weights + (2 + again) * kept["activations"])

    def compile(self):
        """The compiled step, and its memory, for the devices of the mesh."""
        with jax.set_mesh(self.mesh):
            return self.train_step.lower(self.state, self.batch).compile()
