"""What is checked: a job with its parameters and a few rows of its data, and the functions that several probes share.

Every function is the job's own: the loss of its task, the steps of its trainer. Only rows are left out.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import tfm
from tfm.params import PyTree
from train.data import feed, text_rows
from train.data.corpus import Corpus
from train.data.fields import Field
from train.lab.check.taps import block_gradients
from train.losses.joint import JointLoss
from train.losses.loss import Sums
from train.runs.state import State
from train.screens.console import Log
from train.text import tokenize
from train.text.special import AnyTokenizer, SpecialTokens
from train.training import step
from train.training.job import Job

# Fields of a batch that are 0 where there is padding; and those by which training makes targets softer, or adds losses
# beside that of the targets.
PRESENCE = ("valid", "segments")
SOFTENING = ("smoothing", "focal", "scale")

# Targets whose dependence on the text is looked at.
_TARGETS = 6

HostBatch = Mapping[str, np.ndarray]

# (state, batch) -> (state, sums).
TrainStep = Callable[[State, Mapping[str, Array]], tuple[State, Sums]]


@dataclasses.dataclass(frozen=True)
class Subject:
    """A job, its corpus, parameters on its mesh, whether these are as initialized, the log, and the file for a picture
    of widths, or None."""

    job: Job
    corpus: Corpus
    params: PyTree
    is_fresh: bool
    log: Log
    picture: Path | None = None

    @property
    def spec(self) -> Mapping[str, Field]:
        """The declared fields of a batch."""
        return self.job.batch_spec

    @cached_property
    def rows(self) -> int:
        """Rows of a batch here: at least 4 examples, and 2 for each part of the mesh that shares rows."""
        shards = math.prod(self.job.mesh.shape.get(name, 1) for name in tfm.AXES["B"].mesh)
        batch = self.corpus.batch(0)
        rows_of_example = -(-len(batch[self.inputs[0]]) // len(batch[self.weights[0]]))
        return 2 * shards * max(1, -(-2 // shards)) * rows_of_example

    @cached_property
    def batch(self) -> dict[str, np.ndarray]:
        """The first rows of the first training batch, with plain targets: what most probes look at."""
        batch = self.training_batch(0)
        return batch | {name: np.zeros_like(batch[name]) for name in SOFTENING if name in batch}

    def training_batch(self, n: int) -> dict[str, np.ndarray]:
        """The first rows of training batch n, repeated where it has fewer; with all texts that share them."""
        batch = self.corpus.batch(n)
        rows = len(batch[self.inputs[0]])
        sizes = {name: self.rows * len(array) // rows for name, array in batch.items()}
        return {
            name: np.resize(array, (size, *array.shape[1:])) if len(array) < size else array[:size]
            for (name, array), size in zip(batch.items(), sizes.values(), strict=True)
        }

    @cached_property
    def tokenizer(self) -> "AnyTokenizer | None":
        """What turns texts into tokens; None where rows have no texts."""
        return self.job.task.processor.tokenizer(self.corpus.processor)

    @cached_property
    def specials(self) -> SpecialTokens:
        """The special tokens of the tokenizer."""
        assert self.tokenizer is not None, "rows of texts have special tokens"
        return tokenize.special_tokens(self.tokenizer)

    @property
    def inputs(self) -> list[str]:
        """The fields that a model reads: of tokens, and of pictures."""
        return [name for name, field in self.spec.items() if field.counts_tokens]

    @property
    def token_fields(self) -> list[str]:
        """The fields of tokens that a model reads; a model that writes reads what it has written from the last one."""
        return [name for name in self.inputs if "T" in self.spec[name].axes]

    @property
    def weights(self) -> list[str]:
        """The fields that say how much every target counts: one, or one for each field of targets."""
        names = [name for name, field in self.spec.items() if field.weighs]
        return [name for name in names if self.spec[name].axes == self.spec[names[0]].axes]

    @property
    def targets(self) -> str:
        """The first field of targets, where they are classes; else empty."""
        return next((name for name, field in self.spec.items() if field.predicts), "")

    def tokens_of(self, weights: str) -> str:
        """The field of tokens that the targets of a field of weights are written into, or stand in."""
        order = self.spec[weights].order
        return order[0] if order else self.token_fields[0]

    @property
    def writes(self) -> bool:
        """Whether the model writes text, each token from those before it."""
        return self.job.task.writes_in_order

    @property
    def precision(self) -> float:
        """How far equal losses may be apart after another order of sums, in parts of their mean."""
        return 1e-4 if {self.job.model.dtype, self.job.model.param_dtype} == {"float32"} else 0.02

    def padding(self, batch: HostBatch, tokens: str) -> np.ndarray:
        """bool, as a field of tokens: whether a place is padding.

        Where no field says so of written text: whether no target stands there or later in the row.
        """
        if tokens == self.token_fields[0] and set(PRESENCE) & set(batch):
            return next(batch[name] for name in PRESENCE if name in batch) == 0
        weights = next((name for name in self.weights if (self.spec[name].order or ("",))[0] == tokens), None)
        if weights is None:
            return np.zeros(batch[tokens].shape, bool)
        counts = batch[weights] > 0
        return ~np.logical_or.accumulate(counts[:, ::-1], axis=1)[:, ::-1]

    def segments_field(self, tokens: str) -> str:
        """The field of the texts that the places of a field of tokens belong to."""
        return "segments" if tokens == self.token_fields[0] else f"{tokens}_segments"

    @property
    def texts(self) -> int:
        """The texts of an example that may each need a row."""
        return self.spec[self.inputs[0]].rows

    def examples(self, batch: HostBatch) -> np.ndarray | None:
        """The example that each place of a batch is of, as `text_rows.examples_of`; None where rows are no texts, or
        targets are of tokens."""
        is_of_texts = "rows" in batch and self.places(batch) is None
        return text_rows.examples_of(batch, self.texts) if is_of_texts else None

    def places(self, batch: HostBatch) -> np.ndarray | None:
        """The place of every target in its row, as a field of weights; None for targets of whole rows."""
        if "where" in batch:
            return batch["where"]
        weights = batch[self.weights[0]]
        return np.broadcast_to(np.arange(weights.shape[1]), weights.shape) if weights.ndim == 2 else None

    def on_mesh(self, batch: HostBatch, parts: int = 1, mesh: Mesh | None = None) -> dict[str, Array]:
        """Fields [parts, rows, ...] on the devices of the mesh, by default the job's."""
        return feed.to_devices(batch, self.spec, mesh or self.job.mesh, parts)

    def losses(self, batch: HostBatch) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """The loss of every target, which is the derivative for its weight, by fields of weights; and the sums of the
        task's loss."""
        with jax.set_mesh(self.job.mesh):
            return jax.device_get(self._losses(self.params, self.on_mesh(batch)))

    @cached_property
    def _losses(self):
        job, names = self.job, self.weights

        @jax.jit
        def losses(params, batch):
            batch = {field: array[0] for field, array in batch.items()}

            def total(weights):
                sums = job.loss(params, batch | weights, None)
                return sums["loss"], {name: value for name, value in sums.items() if value.ndim == 0}

            return jax.grad(total, has_aux=True)({name: batch[name] for name in names})

        return losses

    def influence(self, batch: HostBatch) -> "list[Influence]":
        """What some targets, early and late ones, depend on: by the gradient of the loss of each alone.

        Rows that meet in the loss have vectors as their targets.
        """
        return [influence for name in self.weights for influence in self._influences(batch, name)]

    def _influences(self, batch: HostBatch, weights: str) -> "Iterator[Influence]":
        """What some targets of a field of weights depend on."""
        targets = np.argwhere(batch[weights] > 0)
        places = self.places(batch)
        if places is not None:
            targets = targets[np.argsort(places[tuple(targets.T)], kind="stable")]
        nothing = {name: np.zeros_like(batch[name]) for name, field in self.spec.items() if field.weighs}
        for target in targets[np.unique(np.linspace(0, len(targets) - 1, _TARGETS).astype(int))].tolist():
            alone = nothing[weights].copy()
            alone[tuple(target)] = 1
            with jax.set_mesh(self.job.mesh):
                fields = self.on_mesh({**batch, **nothing, weights: alone})
                blocks = jax.device_get(self._influence(self.params, fields))
            place = -1 if places is None else int(places[tuple(target)])
            yield Influence(target[0], place, weights, blocks)

    @cached_property
    def _influence(self):
        # Names of blocks are visible where blocks are unrolled and not recomputed.
        job, model = self.job, dataclasses.replace(self.job.model, scan=False, remat="none")
        loss, weights = job.task.loss, self.weights[0]

        def objective(params, batch):
            if not isinstance(loss, JointLoss):
                return loss(params, model, batch, None)["loss"]
            vectors = loss.encode(params, model, batch, None).astype(jnp.float32)
            # A direction other than that of the vector, whose length may be constant.
            direction = jnp.cos(jnp.arange(vectors.shape[-1], dtype=jnp.float32))
            return (vectors @ direction * jnp.expand_dims(batch[weights], range(1, vectors.ndim - 1))).sum()

        @jax.jit
        def influence(params, batch):
            batch = {name: array[0] for name, array in batch.items()}
            gradients = block_gradients(objective, params, batch, self.inputs)
            return jax.tree.map(lambda gradient: jnp.abs(gradient.astype(jnp.float32)).max(-1), gradients)

        return influence

    def gradient(
        self, batch: HostBatch, parts: int = 1, model: tfm.Config | None = None, mesh: Mesh | None = None
    ) -> tuple[PyTree, dict[str, float]]:
        """The gradient that the training step hands to its optimizer, None for frozen parameters; and its sums.

        The step is the trainer's, without dropout; its optimizer makes the gradient the new parameters.
        """
        job, mesh = self.job, mesh or self.job.mesh
        train_step = self._gradient_step(model or job.model)
        with jax.set_mesh(mesh):
            start = jax.device_put(np.zeros((), np.int32), NamedSharding(mesh, PartitionSpec()))
            params = jax.device_put(self.host_params, tfm.shardings(job.specs, mesh))
            state, sums = train_step(State(start, params, ()), self.on_mesh(batch, parts, mesh))
            return jax.device_get((job.optimizer.split(state.params)[0], sums))

    def _gradient_step(self, model: tfm.Config) -> TrainStep:
        """A training step, once for every model."""
        if model not in self._gradient_steps:

            def become_gradient(gradients, state, params, rates):
                return jax.tree.map(jnp.subtract, gradients, params), state

            job = self.job
            optimizer = job.optimizer._replace(init=lambda params: (), update=become_gradient)
            self._gradient_steps[model] = step.make_train_step(job.task.loss, model, optimizer, job.run.seed, False)
        return self._gradient_steps[model]

    @cached_property
    def _gradient_steps(self) -> dict[tfm.Config, TrainStep]:
        return {}

    @cached_property
    def host_params(self) -> PyTree:
        """The parameters, in the memory of the host."""
        return jax.device_get(self.params)

    @cached_property
    def plain_gradient(self) -> tuple[PyTree, dict[str, float]]:
        """The gradient of `batch` and its sums."""
        return self.gradient(self.batch)


@dataclasses.dataclass(frozen=True)
class Influence:
    """What one target depends on.

    row: the row of the target, or its example
    place: its place in the row; -1 for a target of an example
    weights: the field of its weight
    blocks: by the field that a stack reads: for the input of each of its blocks, float32 [rows, T]: the largest
        derivative for a component of each token
    """

    row: int
    place: int
    weights: str
    blocks: dict[str, list[np.ndarray]]
