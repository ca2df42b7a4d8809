"""The loss of the starts and ends of answers."""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

import tfm
from tfm.models.choices import ABSENT
from tfm.models.heads import token_logits
from tfm.sharding import fold_rows, replicate_length
from train.losses.teaching import ClassOutputs, OutputLoss
from train.tasks.classification import read, texts_of


def outputs(params: tfm.Tagger, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> ClassOutputs:
    """What the model says of the starts and ends of a batch: logits [B*n,2,T] over the places of their row, very low
    where none may be."""
    hidden, head_key = read(params, model, batch, key)
    logits = jnp.swapaxes(replicate_length(token_logits(params, model, hidden, head_key)), 1, 2)
    candidates = texts_of(batch) & (replicate_length(batch["candidates"])[:, None] > 0)
    by_text = jnp.where(candidates[:, :, None], logits[:, None], ABSENT)
    return ClassOutputs(hidden, batch["segments"] > 0, fold_rows(by_text))


def sums(params: tfm.Tagger, model: tfm.Config, batch: Mapping[str, Array], outputs: ClassOutputs) -> dict[str, Array]:
    """Sums over the windows of a batch, float32: `loss` (the mean of that of start and end, nats), `weight`, `right`.

    For evaluation also `start_logits` and `end_logits` [B*n,T] of every window.
    """
    weights = batch["weights"]
    starts, ends = outputs.logits[:, 0], outputs.logits[:, 1]
    losses = (tfm.cross_entropy(starts, batch["starts"]) + tfm.cross_entropy(ends, batch["ends"])) / 2
    right = (starts.argmax(-1) == batch["starts"]) & (ends.argmax(-1) == batch["ends"])
    return {
        "loss": (losses * weights).sum(),
        "weight": weights.sum(),
        "right": (right.astype(jnp.float32) * weights).sum(),
        "padding": (batch["segments"] == 0).astype(jnp.float32).mean() * weights.sum(),
        "start_logits": starts,
        "end_logits": ends,
    }


loss = OutputLoss(outputs, sums, valid="segments")
