"""The loss of the classes or values of texts."""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

import tfm
from tfm.models.classifier import text_logits
from tfm.sharding import fold_rows, unfold_rows
from train.losses.generative import generative_loss
from train.losses.teaching import ClassOutputs, OutputLoss
from train.tasks.classification import class_losses, read, texts_of


def outputs(params: tfm.Classifier, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> ClassOutputs:
    """What the model says of the texts of a batch."""
    hidden, head_key = read(params, model, batch, key)
    logits = text_logits(params, model, hidden, texts_of(batch, _orders(batch)), head_key)
    if "orders" in batch:
        logits = unfold_rows(logits, batch["orders"]).sum(1)
    return ClassOutputs(hidden, batch["segments"] > 0, logits)


def sums(
    params: tfm.Classifier, model: tfm.Config, batch: Mapping[str, Array], outputs: ClassOutputs
) -> dict[str, Array]:
    """Sums over the texts of a batch, float32: `loss` (nats, or squared error), `weight`, and `right` for classes.

    For evaluation also `scores` [B,C], labels and weights of every text.
    """
    labels, weights, logits = batch["labels"], batch["weights"], outputs.logits
    right = None
    if labels.ndim == 1 and labels.dtype == jnp.float32:
        losses = jnp.square(logits[:, 0] - labels)
    else:
        losses = class_losses(logits, batch)
        right = logits.argmax(-1) == labels if labels.ndim == 1 else ((logits > 0) == (labels > 0)).all(-1)
    hits = {} if right is None else {"right": (right.astype(jnp.float32) * weights).sum()}
    generative = {}
    if "generative" in batch:
        factors = batch["generative"] * weights
        if "orders" in batch:
            factors = fold_rows(batch["orders"].astype(jnp.float32) * factors[:, None] / _orders(batch))
        generative = generative_loss(params, model, batch, outputs.hidden, texts_of(batch, _orders(batch)), factors)
    return (
        hits
        | generative
        | {
            "loss": (losses * weights).sum(),
            "weight": weights.sum(),
            "padding": (batch["segments"] == 0).astype(jnp.float32).mean() * weights.sum(),
            "scores": logits,
            "labels": labels,
            "weights": weights,
        }
    )


def _orders(batch: Mapping[str, Array]) -> int:
    """The orders in which texts are read."""
    return batch["orders"].shape[1] if "orders" in batch else 1


loss = OutputLoss(outputs, sums, valid="segments")
