"""The loss of the labels of words."""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

import tfm
from tfm.models.heads import token_logits
from train.losses.teaching import ClassOutputs, OutputLoss
from train.tasks.classification import read


def outputs(params: tfm.Tagger, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> ClassOutputs:
    """What the model says of the tokens of a batch."""
    hidden, head_key = read(params, model, batch, key)
    return ClassOutputs(hidden, batch["segments"] > 0, token_logits(params, model, hidden, head_key))


def sums(params: tfm.Tagger, model: tfm.Config, batch: Mapping[str, Array], outputs: ClassOutputs) -> dict[str, Array]:
    """Sums over the words of a batch, float32: `loss` in nats, `weight` (their count) and `right`.

    For evaluation also `guesses`, the most probable class of every place, int32 [B,T].
    """
    weights = batch["weights"]
    guesses = outputs.logits.argmax(-1).astype(jnp.int32)
    return {
        "loss": (tfm.cross_entropy(outputs.logits, batch["labels"]) * weights).sum(),
        "weight": weights.sum(),
        "right": ((guesses == batch["labels"]).astype(jnp.float32) * weights).sum(),
        "padding": (batch["segments"] == 0).astype(jnp.float32).mean() * weights.sum(),
        "guesses": guesses,
    }


loss = OutputLoss(outputs, sums, valid="segments")
