"""The loss of the tokens that a decoder writes, whatever its encoder reads."""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

import tfm
from train.losses.teaching import TokenOutputs
from train.metrics import scores


def target_sums(
    params: tfm.Seq2Seq, model: tfm.Config, batch: Mapping[str, Array], outputs: TokenOutputs
) -> dict[str, Array]:
    """Sums over the targets of a batch, float32: `loss` in nats, `weight`, and `right`."""
    weights, smoothing = batch["weights"], batch["smoothing"][:, None]
    total, _, hits = tfm.vocabulary_loss(
        model, outputs.table, outputs.features, batch["targets"], weights, smoothing, outputs.bias
    )
    return {"loss": total, "weight": weights.sum(), "right": (hits.astype(jnp.float32) * weights).sum()}


def target_metrics(sums: Mapping[str, float]) -> dict[str, float]:
    """Means from sums: loss in nats a token (smoothed in training), perplexity, accuracy of the next token."""
    weight = max(sums["weight"], 1)
    mean = sums["loss"] / weight
    return {"loss": mean, "perplexity": scores.perplexity(mean), "accuracy": sums["right"] / weight}
