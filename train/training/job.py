"""A run of a task on a mesh: its parameters, state and batches, as shapes before they are arrays, and its step."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import tfm
from train import UserError
from train.data import by_source, feed
from train.data.fields import BatchSpec, Field
from train.data.text_rows import Layout
from train.devices.mesh import bytes_per_device
from train.losses.loss import NO_EXTRA, Extra, Loss, Sums
from train.losses.teaching import DistilledLoss, OutputLoss
from train.runs import maximal_update
from train.runs.state import State
from train.runs.teacher import TeacherModel
from train.runs.tuning import specs_of
from train.settings.schema import Config, Run
from train.tasks.record import Task
from train.training import optimizer, step
from train.training.layer_rates import scale_by_layer
from train.training.rates import rates

# Shapes and shardings of the fields of a batch.
Fields = dict[str, jax.ShapeDtypeStruct]


@dataclasses.dataclass(frozen=True)
class Job:
    """A run of a task on a mesh, whose devices may be absent.

    layout: how texts lie in rows; none: rows have --batch.length places
    """

    run: Run
    task: Task
    mesh: Mesh
    layout: Layout | None = None

    @cached_property
    def specs(self):
        """The declared parameters."""
        return specs_of(self.task, self.run)

    @cached_property
    def optimizer(self):
        """The optimizer."""
        optim = maximal_update.optim_of(self.run)
        scale = scale_by_layer(self.specs, optim.layer_decay, self.run.tune.top_layers)
        return optimizer.optimizer(optim, self.run.steps, self.specs, scale, rates(self.run))

    @cached_property
    def fresh(self) -> step.FreshProgram:
        """The program that makes a state; it is traced once, for its shapes and to run."""
        memory, has_average = functools.partial(new_memory, self), self.run.optim.has_average
        return step.fresh_program(self.specs, self.optimizer, self.mesh, has_average, memory, is_scaled(self.run))

    @cached_property
    def state(self) -> State:
        """Shapes and shardings of the training state."""
        state = step.abstract_state(self.fresh, self.optimizer, self.mesh)
        return dataclasses.replace(state, teacher=self.teacher and self.teacher.abstract(self.mesh))

    def new_state(self) -> State:
        """A fresh training state, with the weights of the teacher."""
        state = step.first_state(self.fresh, self.optimizer, self.run.seed, self.mesh)
        return dataclasses.replace(state, teacher=self.teacher and self.teacher.load(self.mesh))

    @cached_property
    def teacher(self) -> TeacherModel | None:
        """The model that this one learns from beside its labels. Raises UserError where it cannot teach this run."""
        return TeacherModel(self.run, self.task) if self.run.teacher.folder else None

    @cached_property
    def batch_spec(self) -> BatchSpec:
        """The declared fields of a batch."""
        return self.task.batch_spec(self.run)

    @property
    def model(self) -> Config:
        """The model's configuration, with the run's choice of attention kernel."""
        kernel = self.run.attention.kernel
        return self.run.model if kernel is None else dataclasses.replace(self.run.model, kernel=kernel)

    def loss(self, params, batch, key, extra: Extra = NO_EXTRA) -> Sums:
        """The sums of the loss that steps minimize over one part of a batch."""
        return _loss(self)(params, self.model, batch, key, **extra.arguments)

    @cached_property
    def train_step(self):
        """The step that the trainer runs: (state, batch) -> (state, sums)."""
        return train_step_for(self, 1)


def is_scaled(run: Run) -> bool:
    """Whether the loss has a scale: some of its gradients are float16."""
    return run.model.dtype == "float16"


def extra_of(job: Job) -> Extra:
    """Shapes and shardings of what the loss of one part reads beside the batch."""
    return Extra(jax.tree.map(functools.partial(_first_part, job.mesh), job.state.memory), job.state.teacher)


def extra_of_state(state: State) -> Extra:
    """What the loss of the first part reads beside the batch."""
    return Extra(jax.tree.map(lambda leaf: leaf[0], state.memory), state.teacher)


def device_batch(job: Job, corpus, n: int) -> dict[str, jax.Array]:
    """Training batch n of a corpus, on the devices of the mesh: fields [parts, rows, ...]."""
    rows = functools.partial(feed.local_rows, job.mesh, job.run.batch.accumulate)
    return batch_to_devices(job, corpus.batch_ahead(n, rows))


def batch_to_devices(job: Job, batch: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
    """Fields [B, ...] of the batch of a step -> arrays [parts, B / parts, ...] on the mesh."""
    return feed.to_devices(batch, job.batch_spec, job.mesh, job.run.batch.accumulate)


def train_step_for(job: Job, shapes: int):
    """The training step of batches of `shapes` different shapes; it is compiled for each."""
    run = job.run
    platform = job.mesh.devices.flat[0].platform
    options = step.compiler_options(platform, run.model.dtype, _largest_array(job), run.steps // shapes)
    return step.make_train_step(_loss(job), job.model, job.optimizer, run.seed, run.has_dropout, run.optim.ema, options)


def new_memory(job: Job, parts: int | None = None) -> tfm.SegmentMemory | None:
    """The memory of rows whose text begins, leaves [parts, ...]; None where rows do not continue those before.

    `parts` are those of a batch, by default of a training batch. Raises UserError for a mesh that fills up rows.
    """
    size, batch = job.run.task.memory, job.run.batch
    if size is None:
        return None
    if batch.length % (context := job.mesh.shape["context"]):
        raise UserError(f"--mesh.context={context} must divide --batch.length={batch.length} with --task.memory")
    parts = parts or batch.accumulate
    memory = tfm.segment_memory(job.model, batch.size // parts, size, job.mesh)
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * parts), memory)


def _loss(job: Job) -> Loss:
    """The loss that steps minimize: the task's, or that of the task and a teacher."""
    if job.teacher is None:
        return job.task.loss
    assert isinstance(job.task.loss, OutputLoss), "a loss that a teacher can have a part in"
    return DistilledLoss(job.task.loss, job.run.teacher, job.teacher.running_model)


def planned_shapes(job: Job, corpus) -> list[dict[str, tuple[int, ...]]]:
    """The shapes [parts, rows, ...] of all batches that the corpus of a job makes."""

    spec = {**by_source.SPEC, **job.batch_spec}

    def on_mesh(name: str, array) -> tuple[int, ...]:
        return feed.layout(spec[name], array.shape, job.mesh, job.run.batch.accumulate).shape

    return [{name: on_mesh(name, array) for name, array in batch.items()} for batch in corpus.example_batches()]


def largest_batch(job: Job) -> Fields:
    """Shapes and shardings of the fields [parts, rows, ...] of the largest batch."""
    batch = job.run.batch
    rows = batch.unit * max(1, (batch.tokens or 0) // batch.length // batch.unit)

    def shape_of(field: Field) -> tuple[int, ...]:
        return job.layout.shape_of(field) if job.layout else field.shape(rows, batch.length)

    return {
        name: feed.layout(field, shape_of(field), job.mesh, batch.accumulate) for name, field in job.batch_spec.items()
    }


def largest_part(job: Job) -> Fields:
    """Shapes and shardings of the fields [rows, ...] of one part of that batch."""
    return jax.tree.map(functools.partial(_first_part, job.mesh), largest_batch(job))


def _first_part(mesh: Mesh, field: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """The shape and sharding [rows, ...] of one part of [parts, rows, ...]."""
    sharding = NamedSharding(mesh, PartitionSpec(*field.sharding.spec[1:]))
    return jax.ShapeDtypeStruct(field.shape[1:], field.dtype, sharding=sharding)


def batch_tokens(job: Job) -> int:
    """Positions of that batch, of sources and of targets."""
    batch = largest_batch(job)
    return round(sum(job.batch_spec[name].tokens(math.prod(batch[name].shape)) for name in _token_fields(job)))


def tokens_per_step(job: Job, corpus) -> float:
    """Positions of a training batch; of batches of several shapes, and of texts, their tokens on average."""
    if corpus.layout:
        return corpus.layout.tokens
    buckets = corpus.train[0].buckets
    return buckets.tokens / buckets.batches if buckets else batch_tokens(job)


def _token_fields(job: Job) -> list[str]:
    """The fields whose positions are the tokens of a batch."""
    return [name for name, field in job.batch_spec.items() if field.counts_tokens]


def _largest_array(job: Job) -> int:
    """About the bytes of a step's largest array on a device: the widest activation in float32, or a gradient."""
    part = largest_part(job)
    width = max(tower.sizes[axis] for tower in job.run.model.towers for axis in "DF")
    # Tokens and pixels are as wide as float32.
    tokens = max(job.batch_spec[name].tokens(bytes_per_device([part[name]])) for name in _token_fields(job))
    return max(round(width * tokens), *(bytes_per_device([leaf]) for leaf in jax.tree.leaves(job.state.params)))


def compile_step(job: Job):
    """The step for the largest batch, compiled for the devices of the mesh."""
    with jax.set_mesh(job.mesh):
        return job.train_step.lower(job.state, largest_batch(job)).compile()
