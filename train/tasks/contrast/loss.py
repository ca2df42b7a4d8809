"""The loss of vectors of texts: near those that belong together, far from all others of a batch."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jax import Array

import tfm
from tfm.sharding import fold_rows, replicate, unfold_rows
from train.losses.joint import JointLoss


def encode_rows(params: tfm.Classifier, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> Array:
    """Vectors of the texts of a batch, float32 [B,n,D] of length 1, perhaps quantized; in training two of a row's only
    text."""
    tokens, valid = batch["tokens"], batch["valid"] > 0
    if tokens.shape[1] == 1 and key is not None:
        tokens, valid = (jnp.concatenate([side, side], axis=1) for side in (tokens, valid))
    rows = fold_rows(valid)
    hidden = tfm.encoder(params.encoder, model, fold_rows(tokens), tfm.padding(rows), key=key)
    vectors = tfm.pool(hidden.astype(jnp.float32), rows, model.head.pool)
    return quantized(tfm.unit_vectors(unfold_rows(vectors, tokens)), batch)


def quantized(vectors: Array, batch: Mapping[str, Array]) -> Array:
    """vectors [...,D] of length 1 -> what int8 or signs keep of them, of length 1, with the gradients of the vectors;
    or they themselves, where the batch has no field that says so."""
    if "binary" in batch:
        kept = jnp.where(vectors >= 0, 1.0, -1.0)
    elif "int8" in batch:
        scales = jnp.maximum(jnp.abs(vectors).max(-1, keepdims=True), 1e-30) / 127
        kept = jnp.round(vectors / scales)
    else:
        return vectors
    return vectors + jax.lax.stop_gradient(tfm.unit_vectors(kept) - vectors)


def compare(params: tfm.Classifier, vectors: Array, batch: Mapping[str, Array]) -> dict[str, Array]:
    """vectors [P,B,n,D], fields [P,B,...] -> sums over all rows, float32: `loss` (nats, or squared error), `weight`,
    `padding` and, of pairs, `right`. With `sizes`, the loss is the sum of those of the first numbers of vectors.

    For evaluation also the vectors, scores, weights, `withheld` and `contents` of the rows of one part.
    """
    weights = batch["weights"]
    if "sizes" in batch:  # those of all rows are the same
        sizes = jnp.unstack(batch["sizes"].max((0, 1)))
        parts = [_losses(_shortened(vectors, size), batch)[0] for size in sizes]
        losses, right = sum(parts, start=jnp.zeros_like(weights)), _losses(vectors, batch)[1]
    else:
        losses, right = _losses(vectors, batch)
    sums = {} if right is None else {"right": (right.astype(jnp.float32) * weights).sum()}
    is_padding = (batch["valid"] == 0).astype(jnp.float32)
    return sums | {
        "loss": (losses * weights).sum(),
        "weight": weights.sum(),
        "padding": is_padding.mean() * weights.sum(),
        "vectors": vectors[0],
        **{name: batch[name][0] for name in ("scores", "weights", "withheld", "contents") if name in batch},
    }


def _losses(vectors: Array, batch: Mapping[str, Array]) -> tuple[Array, Array | None]:
    """vectors [P,B,n,D] of length 1 -> losses [P,B], and of in-batch negatives whether the right one is the nearest.

    The fields of the batch say which loss it is.
    """
    queries = vectors[:, :, 0]
    candidates = vectors[:, :, 1:] if vectors.shape[2] > 1 else vectors
    count = candidates.shape[2]
    is_row = batch["weights"] > 0
    present = (batch["valid"] > 0).any(-1)[:, :, -count:] & is_row[:, :, None]
    if "scores" in batch:
        cosines = (queries * candidates[:, :, 0]).sum(-1)
        if "temperature" not in batch:
            return jnp.square(cosines - batch["scores"]), None
        pairs, grades, kept = (replicate(array).reshape(-1) for array in (cosines, batch["scores"], is_row))
        value = tfm.cosent_loss(pairs, grades, kept, batch["temperature"].max())
        return jnp.full_like(cosines, 1) * value, None
    if "teacher" in batch:
        cosines, teacher = jnp.einsum("PBD,PBND->PBN", queries, candidates), batch["teacher"]
        if "temperature" not in batch:
            return tfm.margin_losses(cosines, teacher, present), None
        return tfm.divergences(cosines, teacher, present, batch["temperature"]), None
    return _in_batch_losses(queries, candidates, present, batch)


def _in_batch_losses(
    queries: Array, candidates: Array, present: Array, batch: Mapping[str, Array]
) -> tuple[Array, Array]:
    """queries [P,B,D], candidates [P,B,N,D] -> losses [P,B], and whether the right candidate is the nearest.

    With `both_ways`, the mean with those of right candidates that look for their queries.
    """
    contents, temperature = batch["contents"], batch["temperature"]
    of_queries, of_candidates = contents[:, :, 0], contents[:, :, -candidates.shape[2] :]
    losses, right = tfm.in_batch_losses(queries, candidates, present, temperature, (of_queries, of_candidates))
    if "both_ways" not in batch:
        return losses, right
    back, _ = tfm.in_batch_losses(
        candidates[:, :, 0],
        queries[:, :, None],
        present[:, :, :1],
        temperature,
        (of_candidates[:, :, 0], of_queries[:, :, None]),
    )
    return (losses + back) / 2, right


def _shortened(vectors: Array, size: Array) -> Array:
    """vectors [...,D] -> their first `size` numbers, of length 1, and zeros (Kusupati et al. 2022)."""
    return tfm.unit_vectors(jnp.where(jnp.arange(vectors.shape[-1]) < size, vectors, 0))


loss = JointLoss(encode_rows, compare)
