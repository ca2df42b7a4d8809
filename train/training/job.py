"""A run of a task on a mesh: its parameters, state, batches and training step, as shapes before they are arrays."""

import dataclasses
import math
from functools import cached_property
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from train.data import feed
from train.data.fields import BatchSpec
from train.devices.mesh import bytes_per_device
from train.settings.schema import Config, Run
from train.training import optimizer, step


@dataclasses.dataclass(frozen=True)
class Job:
    """A run of a task on a mesh, whose devices may be absent."""

    run: Run
    task: Any
    mesh: Any

    @cached_property
    def specs(self):
        """The declared parameters."""
        return self.task.specs(self.run)

    @cached_property
    def optimizer(self):
        """The optimizer."""
        return optimizer.optimizer(self.run.optim, self.run.steps, self.specs)

    @cached_property
    def state(self) -> step.State:
        """Shapes and shardings of the training state."""
        return step.abstract_state(self.specs, self.optimizer, self.mesh, self.run.optim.ema)

    @cached_property
    def batch_spec(self) -> BatchSpec:
        """The declared fields of a batch."""
        return self.task.batch_spec(self.run)

    @property
    def token_fields(self) -> list[str]:
        """The fields whose positions are the tokens of a batch."""
        return [name for name, field in self.batch_spec.items() if field.counts_tokens]

    @cached_property
    def batch(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and shardings of the fields [parts, rows, ...] of the largest batch."""
        batch = self.run.batch
        rows = batch.unit * max(1, (batch.tokens or 0) // batch.length // batch.unit)
        return {
            name: feed.layout(field, field.shape(rows, batch.length), self.mesh, batch.accumulate)
            for name, field in self.batch_spec.items()
        }

    @property
    def part(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and shardings of the fields [rows, ...] of one part of that batch."""

        def first_part(field: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
            sharding = NamedSharding(self.mesh, PartitionSpec(*field.sharding.spec[1:]))
            return jax.ShapeDtypeStruct(field.shape[1:], field.dtype, sharding=sharding)

        return {name: first_part(field) for name, field in self.batch.items()}

    @property
    def tokens(self) -> int:
        """Positions of that batch, of sources and of targets."""
        return sum(math.prod(self.batch[name].shape) for name in self.token_fields)

    @cached_property
    def train_step(self):
        """The step that the trainer runs."""
        run = self.run
        options = step.compiler_options(self.mesh.devices.flat[0].platform, self.largest)
        dropout = run.model.dropout > 0
        return step.make_train_step(
            self.task.loss, self.model, self.optimizer, run.seed, dropout, run.optim.ema, options
        )

    @property
    def largest(self) -> int:
        """About the bytes of a step's largest array on a device: the widest activation in float32, or a gradient."""
        width = max(self.run.model.sizes[axis] for axis in "DF")
        tokens = max(bytes_per_device([self.part[name]]) for name in self.token_fields)  # int32 is as wide as float32
        return max(width * tokens, *(bytes_per_device([leaf]) for leaf in jax.tree.leaves(self.state.params)))

    @property
    def model(self) -> Config:
        """The model's configuration, with the run's choice of attention kernel."""
        return dataclasses.replace(self.run.model, kernel=self.run.attention.kernel or self.run.model.kernel)

    def loss(self, params, batch, key):
        """The sums of the task's loss over one part of a batch."""
        return self.task.loss(params, self.model, batch, key)

    def compile(self):
        """The step, compiled for the devices of the mesh."""
        with jax.set_mesh(self.mesh):
            return self.train_step.lower(self.state, self.batch).compile()
