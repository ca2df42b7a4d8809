"""Heads: from hidden states to what a task predicts."""

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm import params
from tfm.attention import FORBIDDEN
from tfm.config import Config
from tfm.masks import Mask
from tfm.model import Encoder, encoder, encoder_specs
from tfm.ops import Linear, Norm, activation, einsum, gather, linear, linear_specs, norm, norm_specs, spec_of


@struct.dataclass
class MlmHead:
    """Transform, norm, and output bias [V]; the output table [V,D] is None where it is tied to the token table."""

    dense: Linear
    norm: Norm
    table: Array | None
    bias: Array


@struct.dataclass
class MaskedLM:
    """An encoder with a masked-LM head."""

    encoder: Encoder
    head: MlmHead


def masked_lm_specs(config: Config) -> MaskedLM:
    """The spec tree of BERT's masked language model."""
    return MaskedLM(
        encoder=encoder_specs(config),
        head=MlmHead(
            dense=linear_specs(config, "D", "E", bias=True),
            norm=norm_specs(config),
            table=None if config.tied else params.weight(config, "VD"),
            bias=params.bias(config, "V"),
        ),
    )


def masked_lm(
    model: MaskedLM,
    config: Config,
    tokens: Array,
    where: Array,
    mask: Mask | None = None,
    positions: Array | None = None,
    key: Array | None = None,
) -> Array:
    """tokens [B,T], predicted positions where [B,M] -> float32 logits [B,M,V] (Devlin et al. 2018, section 3.1, task 1).

    Only the predicted positions meet the vocabulary, usually 15 % of them.
    """
    hidden = encoder(model.encoder, config, tokens, mask, positions, key=key)
    chosen = jnp.take_along_axis(hidden, where[:, :, None], axis=1)
    return mlm_logits(model.head, config, chosen, model.encoder.embed.tokens)


def mlm_logits(head: MlmHead, config: Config, x: Array, tokens: Array) -> Array:
    """x [B,M,D] and the token table [V,D], used where the head has no table of its own -> float32 logits [B,M,V]."""
    x = norm(config, head.norm, activation(config)(linear(head.dense, "BMD,DE->BME", x)))
    table = tokens if head.table is None else head.table
    return unembed(config, table, x) + jnp.expand_dims(gather(head.bias), (0, 1))


def unembed(config: Config, table: Array, x: Array) -> Array:
    """x [B,M,D] times the table [V,D] -> float32 logits [B,M,V]; rows that only pad the vocabulary can never be chosen."""
    logits = einsum("BMD,VD->BMV", x, table, dtype=jnp.float32)
    if config.vocab == config.padded_vocab:
        return logits
    return jnp.where((jnp.arange(config.padded_vocab) < config.vocab)[None, None], logits, FORBIDDEN)


def cross_entropy(logits: Array, targets: Array) -> Array:
    """logits [B,M,V] and targets [B,M] -> float32 [B,M]: -log softmax(logits)[target], in nats. Targets are in the vocabulary."""
    logits = logits.astype(jnp.float32)
    if spec_of(logits)[-1] is None:
        chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    else:  # a gather cannot cross shards of the vocabulary, a sum can
        chosen = jnp.where(jnp.arange(logits.shape[-1])[None, None] == targets[..., None], logits, 0).sum(-1)
    return jax.nn.logsumexp(logits, axis=-1) - chosen
