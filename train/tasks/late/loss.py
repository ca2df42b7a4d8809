"""The loss of vectors of tokens: the passage that answers a query is to have the largest score of all in a batch."""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

import tfm
from tfm.ops import linear
from tfm.sharding import fold_rows, unfold_rows
from train.losses.joint import JointLoss


def token_vectors(
    params: tfm.Classifier, model: tfm.Config, tokens: Array, valid: Array, key: Array | None = None
) -> Array:
    """tokens and valid [B,T] -> float32 [B,T,C] of length 1. Places that are not valid are not read, and read."""
    hidden = tfm.encoder(params.encoder, model, tokens, tfm.padding(valid), key=key)
    return tfm.unit_vectors(linear(params.output, "BTD,DC->BTC", hidden))


def encode_rows(params: tfm.Classifier, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> Array:
    """Vectors of the tokens of a batch, float32 [B,n,T,C].

    A place that does not score has zeros in a query, which add nothing; in a passage the vector of its first token,
    which changes no maximum.
    """
    tokens, valid = fold_rows(batch["tokens"]), fold_rows(batch["valid"]) > 0
    vectors = unfold_rows(token_vectors(params, model, tokens, valid, key), batch["tokens"])
    is_passage = (jnp.arange(vectors.shape[1]) > 0)[:, None, None]
    return jnp.where(batch["scored"][..., None] > 0, vectors, jnp.where(is_passage, vectors[:, :, :1], 0))


def compare(params: tfm.Classifier, vectors: Array, batch: Mapping[str, Array]) -> dict[str, Array]:
    """vectors [P,B,n,T,C], fields [P,B,...] -> sums over all rows, float32: `loss` in nats, `weight`, `right`,
    `padding`.

    For evaluation also `nearest`, 1 where the right passage is, `weights` and `withheld` of the rows of one part.
    """
    weights, valid = batch["weights"], batch["valid"]
    present = (valid[:, :, 1:] > 0).any(-1) & (weights > 0)[:, :, None]
    contents = batch["contents"][:, :, 0], batch["contents"][:, :, 1:]
    losses, right = tfm.in_batch_losses(vectors[:, :, 0], vectors[:, :, 1:], present, batch["temperature"], contents)
    nearest = right.astype(jnp.float32)
    return {
        "loss": (losses * weights).sum(),
        "weight": weights.sum(),
        "right": (nearest * weights).sum(),
        "padding": (valid == 0).astype(jnp.float32).mean() * weights.sum(),
        "nearest": nearest[0],
        "weights": weights[0],
        "withheld": batch["withheld"][0],
    }


loss = JointLoss(encode_rows, compare)
