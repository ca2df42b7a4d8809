"""Heads: from hidden states to what a task predicts."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm import params
from tfm.attention import FORBIDDEN
from tfm.config import Config
from tfm.masks import Mask, padding
from tfm.model import Encoder, decoder, encoder, encoder_specs
from tfm.ops import Linear, Norm, activation, dropout, einsum, gather, linear, linear_specs, norm, norm_specs, spec_of, split


@struct.dataclass
class MlmHead:
    """Transform, norm, and output bias [V]; the output table [V,D] is None where it is tied to the token table."""

    dense: Linear
    norm: Norm
    table: Array | None
    bias: Array


@struct.dataclass
class MaskedLM:
    """An encoder with a masked-LM head and, where it also learns which sentences follow each other, a pooler and two outputs."""

    encoder: Encoder
    head: MlmHead
    pooler: Linear | None = None
    next: Linear | None = None


@struct.dataclass
class Classifier:
    """An encoder, the pooler that makes one vector of a text, and an output for each class."""

    encoder: Encoder
    pooler: Linear
    output: Linear


@struct.dataclass
class CausalLM:
    """A decoder, and the output table [V,D], None where it is tied to the token table."""

    decoder: Encoder
    table: Array | None


def masked_lm_specs(config: Config, next_sentence: bool = False) -> MaskedLM:
    """The spec tree of BERT's masked language model; `next_sentence` adds the head of its second task."""
    pair = dataclasses.replace(config, classes=2)
    return MaskedLM(
        encoder=encoder_specs(config),
        head=MlmHead(
            dense=linear_specs(config, "D", "E", bias=True),
            norm=norm_specs(config),
            table=None if config.tied else params.weight(config, "VD"),
            bias=params.bias(config, "V"),
        ),
        pooler=linear_specs(config, "D", "E", bias=True) if next_sentence else None,
        next=linear_specs(pair, "D", "C", bias=True) if next_sentence else None,
    )


def classifier_specs(config: Config) -> Classifier:
    """The spec tree of a classifier with `config.classes` outputs."""
    return Classifier(
        encoder=encoder_specs(config),
        pooler=linear_specs(config, "D", "E", bias=True),
        output=linear_specs(config, "D", "C", bias=True),
    )


def causal_lm_specs(config: Config) -> CausalLM:
    """The spec tree of a GPT: a language model that reads from left to right."""
    return CausalLM(decoder=encoder_specs(config), table=None if config.tied else params.weight(config, "VD"))


def causal_lm(
    model: CausalLM, config: Config, tokens: Array, mask: Mask | None = None, positions: Array | None = None, key: Array | None = None
) -> Array:
    """tokens [B,T] -> float32 logits [B,T,V] of the token after each (Radford et al. 2018, eq. 2). A key turns dropout on.

    Every token sees itself and those before it, where the mask allows it too. Raises ValueError as `encoder` does.
    """
    return next_logits(model, config, decoder(model.decoder, config, tokens, mask, positions, key))


def next_logits(model: CausalLM, config: Config, hidden: Array) -> Array:
    """hidden [B,T,D] of a decoder -> float32 logits [B,T,V] of the token after each."""
    return unembed(config, model.decoder.embed.tokens if model.table is None else model.table, hidden)


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
    return mlm_logits(model.head, config, states_at(hidden, where), model.encoder.embed.tokens)


def states_at(hidden: Array, where: Array) -> Array:
    """hidden [B,T,D] at the positions where [B,M] -> [B,M,D]."""
    return jnp.take_along_axis(hidden, where[:, :, None], axis=1)


def mlm_logits(head: MlmHead, config: Config, x: Array, tokens: Array) -> Array:
    """x [B,M,D] and the token table [V,D], used where the head has no table of its own -> float32 logits [B,M,V]."""
    x = norm(config, head.norm, activation(config)(linear(head.dense, "BMD,DE->BME", x)))
    table = tokens if head.table is None else head.table
    return unembed(config, table, x) + jnp.expand_dims(gather(head.bias), (0, 1))


def next_sentence(model: MaskedLM, config: Config, hidden: Array) -> Array:
    """hidden [B,T,D] of sentence pairs -> float32 logits [B,2]: 0 where the second follows the first, 1 where it is a random one.

    Devlin et al. 2018, section 3.1, task 2.
    """
    if model.next is None or model.pooler is None:
        raise ValueError("model has no head for sentence pairs; make it with masked_lm_specs(config, next_sentence=True)")
    return class_logits(model.next, pooled(model.pooler, hidden[:, 0]))


def classify(
    model: Classifier,
    config: Config,
    tokens: Array,
    valid: Array | None = None,
    types: Array | None = None,
    key: Array | None = None,
) -> Array:
    """tokens [B,T] -> float32 logits [B,C], of a class each (Devlin et al. 2018, section 4.1); one class is a regression.

    valid [B,T] is True for a token and False for padding, types [B,T] tell the sentences of a pair apart. A key turns dropout on.
    """
    encoder_key, drop_key = split(key, 2)
    mask = None if valid is None else padding(valid)
    hidden = encoder(model.encoder, config, tokens, mask, types=types, key=encoder_key)
    text = pooled(model.pooler, POOLS[config.pool](hidden, valid))
    return class_logits(model.output, dropout(text, config.dropout, drop_key))


def first(hidden: Array, valid: Array | None) -> Array:
    """hidden [B,T,D] -> [B,D]: the state of the first token, [CLS] in BERT."""
    return hidden[:, 0]


def mean(hidden: Array, valid: Array | None) -> Array:
    """hidden [B,T,D], valid [B,T] -> [B,D]: the mean over the tokens that are no padding, in float32."""
    wide = hidden.astype(jnp.float32)
    if valid is None:
        return wide.mean(1).astype(hidden.dtype)
    weights = valid.astype(jnp.float32)[:, :, None]
    return ((wide * weights).sum(1) / jnp.maximum(weights.sum(1), 1)).astype(hidden.dtype)


POOLS = {"first": first, "mean": mean}


def pooled(pooler: Linear, x: Array) -> Array:
    """x [B,D] -> [B,D]: tanh of a linear map."""
    return jnp.tanh(linear(pooler, "BD,DE->BE", x))


def class_logits(output: Linear, x: Array) -> Array:
    """x [B,D] -> float32 logits [B,C]."""
    return linear(output, "BD,DC->BC", x).astype(jnp.float32)


def unembed(config: Config, table: Array, x: Array) -> Array:
    """x [B,M,D] times the table [V,D] -> float32 logits [B,M,V]; rows that only pad the vocabulary can never be chosen."""
    logits = einsum("BMD,VD->BMV", x, table, dtype=jnp.float32)
    if config.vocab == config.padded_vocab:
        return logits
    return jnp.where((jnp.arange(config.padded_vocab) < config.vocab)[None, None], logits, FORBIDDEN)


def cross_entropy(logits: Array, targets: Array) -> Array:
    """logits [...,V] and targets [...] -> float32 [...]: -log softmax(logits)[target], in nats. Targets are in the vocabulary."""
    logits = logits.astype(jnp.float32)
    if spec_of(logits)[-1] is None:
        chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    else:  # a gather cannot cross shards of the vocabulary, a sum can
        places = jnp.expand_dims(jnp.arange(logits.shape[-1]), range(targets.ndim))
        chosen = jnp.where(places == targets[..., None], logits, 0).sum(-1)
    return jax.nn.logsumexp(logits, axis=-1) - chosen
