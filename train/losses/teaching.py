"""Losses that a teacher can have a part in: those of what a model says of a batch.

A task splits its loss into `outputs`, what the model says, and `sums`, the loss of that. A teacher is asked for the
same outputs, and `DistilledLoss` adds the distance between both to the sums, for every such task alike.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

import tfm
from tfm.ops import broadcast_param
from tfm.sharding import replicate
from train.settings.teacher import Teacher

# The parameters of the teacher among the fields of a batch.
TEACHER = "teacher"


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
    memory: Any = None

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


Outputs = ClassOutputs | TokenOutputs


@dataclasses.dataclass(frozen=True)
class OutputLoss:
    """The `loss` of a task whose targets are classes or tokens, each with a weight in the field `weights`.

    outputs: (params, model, batch, key) -> what the model says
    sums: (params, model, batch, outputs) -> what a loss returns
    """

    outputs: Callable[..., Any]
    sums: Callable[..., dict[str, Any]]

    def __call__(self, params: Any, model: tfm.Config, batch: Mapping[str, Any], key: Any) -> dict[str, Any]:
        """The loss of the labels."""
        return self.sums(params, model, batch, self.outputs(params, model, batch, key))


@dataclasses.dataclass(frozen=True)
class DistilledLoss:
    """The loss of labels and of a teacher, whose parameters are a field of the batch; without that field, of labels.

    The sums have `loss` of both, and apart `loss_labels`, `loss_teacher` and `agreement`: how often both hold the same
    for the most probable. Sources: Hinton et al. 2015; Sanh et al. 2019, section 2; Touvron et al. 2021, section 4.
    """

    task_loss: OutputLoss
    options: Teacher
    teacher_model: tfm.Config

    def __call__(self, params: Any, model: tfm.Config, batch: Mapping[str, Any], key: Any) -> dict[str, Any]:
        """Sums over one part of a batch. The teacher has no dropout, and no gradient."""
        if TEACHER not in batch:
            return self.task_loss(params, model, batch, key)
        fields = {name: field for name, field in batch.items() if name != TEACHER}
        student = self.task_loss.outputs(params, model, fields, key)
        teacher = self.task_loss.outputs(batch[TEACHER], self.teacher_model, fields, None)
        sums = self.task_loss.sums(params, model, fields, student.without_distilled)
        logits, teacher_logits = student.logits_and(teacher)
        if self.options.kind == "hard":
            losses = tfm.hard_losses(logits, teacher_logits)
        else:
            losses = tfm.soft_losses(logits, teacher_logits, self.options.temperature)
        weights = fields["weights"]
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
            taught["loss_hidden"] = sums["weight"] * _mean_distance(student, teacher)
            loss += self.options.hidden * taught["loss_hidden"]
        return {**sums, **taught, "loss": loss}


def _mean_distance(student: Outputs, teacher: Outputs) -> Array:
    """The mean of 1 - cosine over the states of a part that are no padding, a scalar."""
    losses = tfm.cosine_losses(student.hidden, teacher.hidden)
    if student.valid is None:
        return losses.mean()
    valid = student.valid.astype(jnp.float32)
    return (losses * valid).sum() / jnp.maximum(valid.sum(), 1)


def training_metrics(task: Any, sums: Mapping[str, float]) -> dict[str, float]:
    """The metrics of a task from sums of training steps: those of labels, and with a teacher also what it says; `loss`
    is what the run minimizes."""
    if "loss_teacher" not in sums:
        return task.metrics(sums)
    weight = max(sums["weight"], 1)
    names = [name for name in ("loss_labels", "loss_teacher", "loss_hidden", "agreement", "loss") if name in sums]
    return task.metrics({**sums, "loss": sums["loss_labels"]}) | {name: sums[name] / weight for name in names}
