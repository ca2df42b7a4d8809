"""The loss of the classes or values of texts."""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

import tfm
from tfm.models.classifier import pooled_states, text_logits
from tfm.ops import dropout, linear
from tfm.sharding import fold_rows, unfold_rows
from train.losses.generative import generative_loss
from train.losses.teaching import ClassOutputs, OutputLoss
from train.tasks.classification import class_losses, read, texts_of


def outputs(params: tfm.Classifier, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> ClassOutputs:
    """What the model says of the texts of a batch."""
    hidden, head_key = read(params, model, batch, key)
    texts = texts_of(batch, _count(batch))
    if "apart" in batch:
        vectors = unfold_rows(pooled_states(params, model, hidden, texts), batch["apart"])
        logits = linear(params.output, "Bo,oC->BC", dropout(compared(vectors), model.dropout, head_key))
        return ClassOutputs(hidden, batch["segments"] > 0, logits.astype(jnp.float32))
    logits = text_logits(params, model, hidden, texts, head_key)
    if "both_ways" in batch:
        logits = unfold_rows(logits, batch["both_ways"]).sum(1)
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
        if _count(batch) > 1:
            factors = fold_rows(jnp.stack([factors / 2] * 2, axis=1))
        generative = generative_loss(params, model, batch, outputs.hidden, texts_of(batch, _count(batch)), factors)
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


def compared(vectors: Array) -> Array:
    """vectors [B,2,D] of two texts, u and v -> [B,4D]: u, v, |u - v| and u v (Conneau et al. 2017, section 3.1)."""
    u, v = vectors[:, 0], vectors[:, 1]
    return jnp.concatenate([u, v, jnp.abs(u - v), u * v], axis=-1)


def _count(batch: Mapping[str, Array]) -> int:
    """The texts of an example."""
    return 2 if "both_ways" in batch or "apart" in batch else 1


loss = OutputLoss(outputs, sums, valid="segments")
