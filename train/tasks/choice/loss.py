"""The loss of multiple choice."""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

import tfm
from tfm.models.choices import choice_logits
from tfm.models.classifier import text_logits
from tfm.sharding import fold_rows
from train.losses.generative import generative_loss
from train.losses.teaching import ClassOutputs, OutputLoss
from train.tasks.classification import class_losses, read, texts_of


def outputs(params: tfm.Classifier, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> ClassOutputs:
    """What the model says of the continuations of a batch, as `tfm.score_choices` does."""
    hidden, head_key = read(params, model, batch, key)
    present = batch["present"] > 0
    scores = text_logits(params, model, hidden, texts_of(batch, present.shape[1]), head_key)
    return ClassOutputs(hidden, batch["segments"] > 0, choice_logits(scores, present, present[..., None]))


def sums(
    params: tfm.Classifier, model: tfm.Config, batch: Mapping[str, Array], outputs: ClassOutputs
) -> dict[str, Array]:
    """Sums over the texts of a batch, float32: `loss` in nats, `weight` and `right`.

    For evaluation also `scores` [B*n,c], labels and weights of every text.
    """
    labels, weights = batch["labels"], batch["weights"]
    logits = outputs.logits
    present = batch["present"] > 0
    generative = {}
    if "generative" in batch:  # the mean over all continuations, as its authors' code has it
        shares = batch["generative"] * weights / jnp.maximum(present.sum(-1, dtype=jnp.int32), 1).astype(jnp.float32)
        texts, factors = texts_of(batch, present.shape[1]), fold_rows(present.astype(jnp.float32) * shares[:, None])
        generative = generative_loss(params, model, batch, outputs.hidden, texts, factors)
    right = (logits.argmax(-1) == labels).astype(jnp.float32)
    return generative | {
        "loss": (class_losses(logits, batch, present) * weights).sum(),
        "weight": weights.sum(),
        "right": (right * weights).sum(),
        "padding": (batch["segments"] == 0).astype(jnp.float32).mean() * weights.sum(),
        "scores": logits,
        "labels": labels,
        "weights": weights,
    }


loss = OutputLoss(outputs, sums, valid="segments")
