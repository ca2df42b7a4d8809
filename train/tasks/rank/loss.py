"""The loss of the scores of passages: of each by itself, or of those of a row in their order."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jax import Array

import tfm
from train.losses.teaching import ClassOutputs, OutputLoss
from train.tasks.choice.loss import outputs

# Where the logarithm of a grade ends: such a passage has no share.
_NO_GRADE = 1e-30


def grade_losses(scores: Array, grades: Array, present: Array) -> Array:
    """scores, grades from 0 to 1 float32, present bool [B,C] -> losses [B] in nats, the mean over passages that are
    there of the cross-entropy of a grade and the sigmoid of its score."""
    losses = jax.nn.softplus(scores) - grades * scores
    counts = jnp.maximum(present.sum(-1, dtype=jnp.int32), 1).astype(jnp.float32)
    return jnp.where(present, losses, 0).sum(-1) / counts


def share_losses(scores: Array, grades: Array, present: Array) -> Array:
    """scores, grades of 0 and more float32, present bool [B,C] -> losses [B] in nats, the cross-entropy of the softmax
    of scores and the shares of grades; of one grade that is not 0 the log-likelihood of its passage."""
    return tfm.list_losses(scores, jnp.log(jnp.maximum(grades, _NO_GRADE)), present)


# By --task.kind; the field of a batch that has the name of a kind says that it is this one.
LOSSES: Mapping[str, Callable[[Array, Array, Array], Array]] = {
    "bce": grade_losses,
    "softmax": share_losses,
    "listnet": tfm.list_losses,
    "lambda": tfm.lambda_losses,
}


def sums(
    params: tfm.Classifier, model: tfm.Config, batch: Mapping[str, Array], outputs: ClassOutputs
) -> dict[str, Array]:
    """Sums over the rows of a batch, float32: `loss`, `weight`, and `right` where the first passage has the best grade.

    For evaluation also `scores`, `labels` and `present` [B*n,c], and `weights` of every row.
    """
    scores, grades, weights = outputs.logits, batch["labels"], batch["weights"]
    present = batch["present"] > 0
    kind = next(name for name in LOSSES if name in batch)
    losses = LOSSES[kind](scores, grades, present)
    best = jnp.where(present, grades, -jnp.inf).max(-1)
    right = jnp.take_along_axis(grades, scores.argmax(-1)[:, None], 1)[:, 0] == best
    return {
        "loss": (jnp.where(weights > 0, losses, 0) * weights).sum(),
        "weight": weights.sum(),
        "right": (right.astype(jnp.float32) * weights).sum(),
        "padding": (batch["segments"] == 0).astype(jnp.float32).mean() * weights.sum(),
        "scores": scores,
        "labels": grades,
        "present": present,
        "weights": weights,
    }


loss = OutputLoss(outputs, sums, valid="segments")
