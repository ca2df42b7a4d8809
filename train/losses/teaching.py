"""Losses that a teacher can have a part in: those of what a model says of a batch.

A task splits its loss into `outputs`, what the model says, and `sums`, the loss of that. A teacher is asked for the
same outputs, and `DistilledLoss` adds the distance between both to the sums, for every such task alike.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

import jax.numpy as jnp
from jax import Array

import tfm
from tfm.ops import broadcast_param
from tfm.sharding import replicate
from train.losses.loss import AUXILIARY, Extra, RatioLoss, Sums
from train.settings.teacher import Teacher


class ClassOutputs(NamedTuple):
    """What a model says of the classes of rows or of tokens.

    hidden: last states [B,T,D]
    valid: bool [B,T], False for padding; None: all are states of the row
    label_logits: float32 [...,C], one row of them for each weight of the batch; or [B,n,C], n decisions of a weight
    distilled_logits: the same of an output that learns from a teacher alone, which few models have
    """

    hidden: Array
    valid: Array | None
    label_logits: Array
    distilled_logits: Array | None = None

    @property
    def logits(self) -> Array:
        """What is predicted: the mean of both outputs (Touvron et al. 2021, section 4)."""
        if self.distilled_logits is None:
            return self.label_logits
        return (self.label_logits + self.distilled_logits) / 2

    def logits_and(self, teacher: "ClassOutputs") -> tuple[Array, Array]:
        """What learns from a teacher, and what that says."""
        return self.label_logits if self.distilled_logits is None else self.distilled_logits, teacher.logits

    @property
    def without_distilled(self) -> "ClassOutputs":
        """What learns from labels."""
        return self._replace(distilled_logits=None)


class TokenOutputs(NamedTuple):
    """What a model says of tokens of the vocabulary.

    hidden, valid: as in `ClassOutputs`
    features: [B,M,U], of every place that is predicted
    model, table, bias: the configuration, and the parameters [V,U] and [V] that features meet
    memory: that of the next rows, where rows continue one another
    """

    hidden: Array
    valid: Array | None
    features: Array
    model: tfm.Config
    table: Array
    bias: Array | None
    memory: tfm.SegmentMemory | None = None

    @property
    def logits(self) -> Array:
        """float32 [B,M,V]; `tfm.vocabulary_loss` does without them."""
        logits = tfm.unembed(self.model, self.table, self.features)
        return logits if self.bias is None else logits + broadcast_param(self.bias, logits)

    def logits_and(self, teacher: "TokenOutputs") -> tuple[Array, Array]:
        """These logits and a teacher's, of the same tokens; what fills up a table is no token."""
        count = self.model.outputs
        if (count, self.model.padded_vocab) == (teacher.model.outputs, teacher.model.padded_vocab):
            return self.logits, teacher.logits
        return replicate(self.logits)[..., :count], replicate(teacher.logits)[..., :count]

    @property
    def without_distilled(self) -> "TokenOutputs":
        """What learns from labels."""
        return self


# Sums -> means.
Metrics = Callable[[Mapping[str, float]], dict[str, float]]

Outputs = TypeVar("Outputs", ClassOutputs, TokenOutputs)


@dataclasses.dataclass(frozen=True)
class OutputLoss(Generic[Outputs]):
    """The `loss` of a task whose targets are classes or tokens, each with a weight in the field `weights`.

    outputs: (params, model, batch, key) -> what the model says; (..., memory) where rows continue one another
    sums: (params, model, batch, outputs) -> what a loss returns
    totals: fields of a batch, or of all its parts -> what ratios among the sums divide by, which every part has
    valid: the field that is 0 where a state is padding; without it no state is
    """

    outputs: Callable[..., Outputs]
    sums: Callable[..., Sums]
    totals: Callable[[Mapping[str, Array]], dict[str, Array]] = lambda batch: {}
    valid: str = "valid"

    def __call__(
        self,
        params: object,
        model: tfm.Config,
        batch: Mapping[str, Array],
        key: Array | None,
        memory: tfm.SegmentMemory | None = None,
    ) -> Sums:
        """The loss of the labels."""
        outputs = self.outputs(params, model, batch, key, **Extra(memory).arguments)
        return self.sums(params, model, batch, outputs)


@dataclasses.dataclass(frozen=True)
class DistilledLoss(Generic[Outputs]):
    """The loss of labels and of a teacher; without the parameters of the teacher, of labels.

    The sums have `loss` of both, and apart `loss_labels`, `loss_teacher` and `agreement`: how often both hold the same
    for the most probable. Sources: Hinton et al. 2015; Sanh et al. 2019, section 2; Touvron et al. 2021, section 4.
    """

    task_loss: OutputLoss[Outputs]
    options: Teacher
    teacher_model: tfm.Config

    def __call__(
        self,
        params: object,
        model: tfm.Config,
        batch: Mapping[str, Array],
        key: Array | None,
        teacher: object = None,
    ) -> Sums:
        """Sums over one part of a batch. The teacher has no dropout, and no gradient."""
        if teacher is None:
            return self.task_loss(params, model, batch, key)
        batch = {**self.totals(batch), **batch}
        student = self.task_loss.outputs(params, model, batch, key)
        teacher_outputs = self.task_loss.outputs(teacher, self.teacher_model, batch, None)
        sums = self.task_loss.sums(params, model, batch, student.without_distilled)
        logits, teacher_logits = student.logits_and(teacher_outputs)
        if self.options.kind == "hard":
            losses = tfm.hard_losses(logits, teacher_logits)
        else:
            losses = tfm.soft_losses(logits, teacher_logits, self.options.temperature)
        weights = batch["weights"]
        agrees = (logits.argmax(-1) == teacher_logits.argmax(-1)).astype(jnp.float32)
        if losses.ndim > weights.ndim:
            losses, agrees = losses.mean(-1), agrees.mean(-1)
        taught = {
            "loss_labels": sums["loss"],
            "loss_teacher": (losses * weights).sum(),
            "agreement": (agrees * weights).sum(),
        }
        share = self.options.weight
        loss = (1 - share) * taught["loss_labels"] + share * taught["loss_teacher"]
        if self.options.hidden:
            by_target = batch["total_weight"] / jnp.maximum(batch["total_states"], 1)
            taught["loss_hidden"] = by_target * _distances(student, teacher_outputs)
            loss += self.options.hidden * taught["loss_hidden"]
        return {**sums, **taught, "loss": loss}

    def totals(self, batch: Mapping[str, Array], parts: int = 1) -> dict[str, Array]:
        """What ratios among the sums divide by, of a batch whose fields begin with an axis of parts, or of one part.

        Where no state is padding, all parts have as many, and one stands for them.
        """
        totals = self.task_loss.totals(batch)
        if not self.options.hidden:
            return totals
        valid = batch.get(self.task_loss.valid)
        states = jnp.float32(parts) if valid is None else (valid > 0).sum().astype(jnp.float32)
        return {**totals, "total_weight": batch["weights"].sum(), "total_states": states}


def with_totals(loss: object, batch: Mapping[str, Array]) -> dict[str, Array]:
    """Fields [parts, ...] with what ratios of a loss divide by: a sum over all parts, the same number [parts] of each.

    So losses that are ratios do not depend on the number of parts.
    """
    parts = len(next(iter(batch.values())))
    totals: dict[str, Array] = {}
    if isinstance(loss, DistilledLoss):
        totals = loss.totals(batch, parts)
    elif isinstance(loss, OutputLoss | RatioLoss):
        totals = loss.totals(batch)
    return {**batch, **{name: jnp.broadcast_to(total, (parts,)) for name, total in totals.items()}}


def _distances(student: Outputs, teacher: Outputs) -> Array:
    """The sum of 1 - cosine over the states of a part that are no padding, or their mean where none is; a scalar."""
    losses = tfm.cosine_losses(student.hidden, teacher.hidden)
    return losses.mean() if student.valid is None else (losses * student.valid.astype(jnp.float32)).sum()


def training_metrics(task_metrics: Metrics, sums: Mapping[str, float]) -> dict[str, float]:
    """The metrics of a task from sums of training steps: those of labels, with a teacher also what it says, and
    auxiliary losses with `loss_task`, the loss without them; `loss` is what the run minimizes."""
    weight = max(sums["weight"], 1)
    metrics = _taught_metrics(task_metrics, sums, weight)
    added = {name.removeprefix(AUXILIARY): sums[name] / weight for name in sums if name.startswith(AUXILIARY)}
    if not added:
        return metrics
    auxiliary = {f"loss_{name}": loss for name, loss in added.items()}
    return metrics | auxiliary | {"loss_task": metrics["loss"], "loss": metrics["loss"] + sum(added.values())}


def _taught_metrics(task_metrics: Metrics, sums: Mapping[str, float], weight: float) -> dict[str, float]:
    """The metrics of labels, and of what a teacher says."""
    if "loss_teacher" not in sums:
        return task_metrics(sums)
    names = [name for name in ("loss_labels", "loss_teacher", "loss_hidden", "agreement", "loss") if name in sums]
    return task_metrics({**sums, "loss": sums["loss_labels"]}) | {name: sums[name] / weight for name in names}
