"""Heads: from hidden states to what a task predicts."""

import dataclasses

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm import params
from tfm.config.model import Config
from tfm.inputs import MaskedPixels
from tfm.interfaces import Memory
from tfm.losses.vocabulary import unembed
from tfm.masks.by_example import padding
from tfm.masks.mask import Mask
from tfm.models.classifier import class_logits, pooled
from tfm.models.encoder import Encoder, decoder, encoder, encoder_specs
from tfm.models.features import LayerMix, features, features_axis, mix_specs
from tfm.models.pooling import first
from tfm.norms import Norm, norm, norm_specs
from tfm.ops import Linear, activation, broadcast_param, dropout, linear, linear_specs, split
from tfm.residuals import output_axis
from tfm.sharding import replicate_length, take_positions


@struct.dataclass
class MlmHead:
    """Transform, norm, and output bias [V]; the output table [V,D] is None where it is tied to the token table."""

    dense: Linear
    norm: Norm
    table: Array | None
    bias: Array


@struct.dataclass
class MaskedLM:
    """An encoder with a masked-LM head and, where it also learns which sentences follow each other, a pooler and two
    outputs."""

    encoder: Encoder
    head: MlmHead
    pooler: Linear | None = None
    next: Linear | None = None

    @property
    def output(self) -> Array:
        """The table [V,D] that hidden states meet."""
        return self.encoder.embed.tokens if self.head.table is None else self.head.table


@struct.dataclass
class Tagger:
    """An encoder with outputs for each token; `dense` and `norm` are a map and a norm before them, which few models
    have. For spans, the outputs are two: how probably an answer starts, and ends, at the token. `mix` are the weights
    of layers, None where the last one is read."""

    encoder: Encoder
    output: Linear
    dense: Linear | None = None
    norm: Norm | None = None
    mix: LayerMix | None = None


@struct.dataclass
class CausalLM:
    """A decoder, the output table [V,D], None where it is tied to the token table, the memory of a source that it
    translates, and the output's bias [V]."""

    decoder: Encoder
    table: Array | None
    memory: Memory | None = None
    bias: Array | None = None

    @property
    def output(self) -> Array:
        """The table [V,D] that hidden states meet."""
        return self.decoder.embed.tokens if self.table is None else self.table


def masked_lm_specs(config: Config, next_sentence: bool = False) -> MaskedLM:
    """The spec tree of BERT's masked language model; `next_sentence` adds the head of its second task."""
    check_reads_tokens(config)
    pair, (axis, sizes) = dataclasses.replace(config, classes=2), output_axis(config)
    return MaskedLM(
        encoder=encoder_specs(config),
        head=MlmHead(
            dense=linear_specs(config, axis, "E" if config.embed_axis == "D" else "U", bias=config.head.bias, **sizes),
            norm=norm_specs(config, config.embed_axis),
            table=None if config.tie_embeddings else params.weight_spec(config, "V" + config.embed_axis),
            bias=params.bias_spec(config, "V"),
        ),
        pooler=linear_specs(config, axis, "E", bias=True, **sizes) if next_sentence else None,
        next=linear_specs(pair, "D", "C", bias=True) if next_sentence else None,
    )


def tagger_specs(config: Config, dense: bool = False) -> Tagger:
    """The spec tree of a model with `config.classes` outputs for each token."""
    axis, sizes = features_axis(config)
    return Tagger(
        encoder=encoder_specs(config),
        output=linear_specs(config, "D" if dense else axis, "C", bias=True, **sizes),
        dense=linear_specs(config, axis, "E", bias=config.head.bias, **sizes) if dense else None,
        norm=norm_specs(config, "E") if dense and config.head.pool_norm else None,
        mix=mix_specs(config),
    )


def masked_image_specs(config: Config) -> Tagger:
    """The spec tree of a model that predicts which of `config.vocab` visual tokens a patch is (BEiT: Bao et al. 2021,
    section 2.3)."""
    specs = tagger_specs(dataclasses.replace(config, classes=config.vocab))
    return dataclasses.replace(specs, norm=norm_specs(config))


def causal_lm_specs(config: Config) -> CausalLM:
    """The spec tree of a GPT: a language model that reads from left to right.

    Raises ValueError for an input without a vocabulary, and for a table of another width than the model that shall be
    its output too.
    """
    check_reads_tokens(config)
    if config.embed_axis != "D" and config.tie_embeddings:
        width = config.sizes[config.embed_axis]
        raise ValueError(f"input.width={width} needs an output table of its own; try tie_embeddings=False")
    return CausalLM(decoder=encoder_specs(config), **output_specs(config))


def check_reads_tokens(config: Config) -> None:
    """Raises ValueError for a model without a vocabulary, which no head can predict tokens of."""
    if "V" not in config.sizes:
        raise ValueError(f"input={config.input.name} has no vocabulary to predict; try input=tokens, or tfm.classify")


def output_specs(config: Config) -> dict:
    """Table and bias of the output of a language model."""
    table, (axis, sizes) = None, output_axis(config)
    if config.tie_embeddings and sizes:
        raise ValueError(
            "residual.merge=concatenated needs an output table of its own, twice as wide as that of tokens; "
            "try tie_embeddings=False"
        )
    if not config.tie_embeddings:
        table = params.weight_spec(config, "V" + axis, **sizes)
        unused = config.padded_vocab - config.outputs
        table = dataclasses.replace(table, padding=unused * sizes.get(axis, config.width))
    return {"table": table, "bias": params.bias_spec(config, "V") if config.head.output_bias else None}


def causal_lm(
    model: CausalLM,
    config: Config,
    tokens: Array,
    mask: Mask | None = None,
    positions: Array | None = None,
    key: Array | None = None,
) -> Array:
    """tokens [B,T] -> float32 logits [B,T,V] of the token after each (Radford et al. 2018, eq. 2). A key turns dropout
    on.

    Every token sees itself and those before it, where the mask allows it too. Raises ValueError as `encoder` does.
    """
    return next_logits(model, config, decoder(model.decoder, config, tokens, mask, positions, key, model.memory))


def lm_features(config: Config, hidden: Array) -> Array:
    """hidden [B,T,D] of a decoder -> the same: what meets the vocabulary."""
    return hidden * config.width**-0.5 if config.head.scale_logits else hidden


def next_logits(model: CausalLM, config: Config, hidden: Array) -> Array:
    """hidden [B,T,D] of a decoder -> float32 logits [B,T,V] of the token after each."""
    logits = unembed(config, model.output, lm_features(config, hidden))
    return logits if model.bias is None else logits + broadcast_param(model.bias, logits)


def masked_lm(
    model: MaskedLM,
    config: Config,
    tokens: Array,
    where: Array,
    mask: Mask | None = None,
    positions: Array | None = None,
    key: Array | None = None,
) -> Array:
    """tokens [B,T], predicted positions where [B,M] -> float32 logits [B,M,V] (Devlin et al. 2018, section 3.1, task
    1).

    Only the predicted positions meet the vocabulary, usually 15 % of them. Raises ValueError as `encoder` does.
    """
    hidden = encoder(model.encoder, config, tokens, mask, positions, key=key)
    return mlm_logits(model.head, config, take_positions(hidden, where), model.encoder.embed.tokens)


def mlm_logits(head: MlmHead, config: Config, x: Array, tokens: Array) -> Array:
    """x [B,M,D] and the token table [V,D], used where the head has no table of its own -> float32 logits [B,M,V]."""
    table = tokens if head.table is None else head.table
    logits = unembed(config, table, mlm_features(head, config, x))
    return logits + broadcast_param(head.bias, logits)


def mlm_features(head: MlmHead, config: Config, x: Array) -> Array:
    """x [B,M,D] -> [B,M,U]: what meets the vocabulary."""
    return norm(config, head.norm, activation(config)(linear(head.dense, "BMD,DU->BMU", x)))


def next_sentence(model: MaskedLM, config: Config, hidden: Array) -> Array:
    """hidden [B,T,D] of sentence pairs -> float32 logits [B,2]: 0 where the second follows the first, 1 where it is a
    random one.

    Devlin et al. 2018, section 3.1, task 2. Raises ValueError for a model without this head.
    """
    if model.next is None or model.pooler is None:
        raise ValueError(
            "model has no head for sentence pairs; make it with masked_lm_specs(config, next_sentence=True)"
        )
    return class_logits(model.next, pooled(model.pooler, None, config, first(hidden)))


def classify_tokens(
    model: Tagger,
    config: Config,
    tokens: Array,
    valid: Array | None = None,
    types: Array | None = None,
    key: Array | None = None,
) -> Array:
    """tokens [B,T] -> float32 logits [B,T,C] of the classes of each (Devlin et al. 2018, section 5.3); of starts and
    ends (section 4.2) where C is 2. Arguments and errors are those of `classify`."""
    encoder_key, drop_key = split(key, 2)
    mask = None if valid is None else padding(valid)
    hidden = features(model.encoder, model.mix, config, tokens, mask, types, encoder_key)
    return token_logits(model, config, hidden, drop_key)


def token_logits(model: Tagger, config: Config, hidden: Array, key: Array | None = None) -> Array:
    """hidden [B,T,D] -> float32 logits [B,T,C] of the classes of each token."""
    if model.dense is not None:
        hidden = activation(config)(linear(model.dense, "BTD,DE->BTE", hidden))
    hidden = hidden if model.norm is None else norm(config, model.norm, hidden)
    return linear(model.output, "BTD,DC->BTC", dropout(hidden, config.dropout, key)).astype(jnp.float32)


def masked_image(model: Tagger, config: Config, pixels: Array, masked: Array, key: Array | None = None) -> Array:
    """pixels [B,H,W,C] and masked patches bool [B,P] -> float32 logits [B,P,V] of the visual token of each patch (BEiT:
    Bao et al. 2021, section 2.3). A key turns dropout on.

    Raises ValueError for a model without `input.mask_token`.
    """
    encoder_key, drop_key = split(key, 2)
    hidden = encoder(model.encoder, config, MaskedPixels(pixels, masked), key=encoder_key)
    return patch_logits(model, config, hidden, drop_key)


def patch_logits(model: Tagger, config: Config, hidden: Array, key: Array | None = None) -> Array:
    """hidden [B,T,D] of images -> float32 logits [B,P,V] of the visual token of each patch."""
    return token_logits(model, config, replicate_length(hidden)[:, config.input.prefix :], key)
