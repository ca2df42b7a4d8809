"""The next tokens of texts or pictures, beside their classes (Radford et al. 2018, eq. 5; Chen et al. 2020)."""

from collections.abc import Mapping

import jax.numpy as jnp
from jax import Array

import tfm
from tfm.sharding import replicate_length, unfold_rows
from train.losses.loss import AUXILIARY, Sums


def generative_loss(
    params: tfm.Classifier, model: tfm.Config, batch: Mapping[str, Array], hidden: Array, texts: Array, weights: Array
) -> Sums:
    """hidden [B,T,D] of a causal classifier, texts bool [B,n,T], weights [B*n] -> `auxiliary_generative`: the sum over
    texts of their weight times the mean loss, in nats, of their tokens but the first.

    The table of the output is that of tokens, unless the model has its own.
    """
    tokens, ends = replicate_length(batch["tokens"]), jnp.zeros_like(texts[..., :1])
    followed = texts & jnp.concatenate([texts[..., 1:], ends], axis=-1)
    counts = jnp.maximum(followed.sum(-1, dtype=jnp.int32), 1).astype(jnp.float32)
    shares = unfold_rows(weights, texts) / counts
    by_token = (followed.astype(jnp.float32) * shares[..., None]).sum(1)
    targets = jnp.concatenate([tokens[:, 1:], tokens[:, -1:]], axis=1)
    table = params.encoder.embed.tokens if params.table is None else params.table
    total = tfm.vocabulary_loss(model, table, tfm.lm_features(model, hidden), targets, by_token)[0]
    return {f"{AUXILIARY}generative": total}
