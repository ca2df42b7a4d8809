"""The loss of vectors of texts: near those that belong together, far from all others of a batch."""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

import tfm
from tfm.sharding import fold_rows, unfold_rows
from train.losses.joint import JointLoss


def encode_rows(params: tfm.Classifier, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> Array:
    """Vectors of the texts of a batch, float32 [B,n,D] of length 1; in training two of a row's only text."""
    tokens, valid = batch["tokens"], batch["valid"] > 0
    if tokens.shape[1] == 1 and key is not None:
        tokens, valid = (jnp.concatenate([side, side], axis=1) for side in (tokens, valid))
    rows = fold_rows(valid)
    hidden = tfm.encoder(params.encoder, model, fold_rows(tokens), tfm.padding(rows), key=key)
    vectors = tfm.pool(hidden.astype(jnp.float32), rows, model.head.pool)
    return tfm.unit_vectors(unfold_rows(vectors, tokens))


def compare(params: tfm.Classifier, vectors: Array, batch: Mapping[str, Array]) -> dict[str, Array]:
    """vectors [P,B,n,D], fields [P,B,...] -> sums over all rows, float32: `loss` (nats, or squared error), `weight`,
    `padding` and, of pairs, `right`.

    For evaluation also the vectors, scores, weights, `withheld` and `contents` of the rows of one part.
    """
    weights, queries = batch["weights"], vectors[:, :, 0]
    candidates = vectors[:, :, 1:] if vectors.shape[2] > 1 else vectors
    if "scores" in batch:
        losses = jnp.square((queries * candidates[:, :, 0]).sum(-1) - batch["scores"])
        sums = {}
    else:
        sides = batch["valid"].shape[2]
        present = (batch["valid"] > 0).any(-1)[:, :, min(1, sides - 1) :] & (weights > 0)[:, :, None]
        contents = batch["contents"]
        of_candidates = contents[:, :, min(1, sides - 1) :]
        losses, is_right = tfm.in_batch_losses(
            queries, candidates, present, batch["temperature"], (contents[:, :, 0], of_candidates)
        )
        sums = {"right": (is_right.astype(jnp.float32) * weights).sum()}
    is_padding = (batch["valid"] == 0).astype(jnp.float32)
    return sums | {
        "loss": (losses * weights).sum(),
        "weight": weights.sum(),
        "padding": is_padding.mean() * weights.sum(),
        "vectors": vectors[0],
        **{name: batch[name][0] for name in ("scores", "weights", "withheld", "contents") if name in batch},
    }


loss = JointLoss(encode_rows, compare)
