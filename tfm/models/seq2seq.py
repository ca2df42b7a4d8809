"""Translation models: an encoder reads a source, and a decoder that attends to what was read writes."""

import dataclasses

import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.attend import Dense
from tfm.config.model import Config
from tfm.masks import padding
from tfm.models.encoder import (
    Encoder,
    before,
    embed,
    encoder,
    encoder_specs,
    placed,
    positions_of,
    recalling,
    remember,
    stack,
)
from tfm.models.heads import CausalLM, causal_lm, output_specs
from tfm.ops import split


@struct.dataclass
class Seq2Seq:
    """An encoder, and a decoder that attends to what it has read; tables [V,D] that they share stand in the first one alone."""

    encoder: Encoder
    decoder: Encoder
    table: Array | None
    bias: Array | None = None


def seq2seq_specs(config: Config) -> Seq2Seq:
    """The spec tree of the first Transformer (Vaswani et al. 2017): one table for source, target and output unless the config says else."""
    target = encoder_specs(config, cross=True)
    if not config.source_vocab:
        target = dataclasses.replace(target, embed=dataclasses.replace(target.embed, tokens=None))
    return Seq2Seq(encoder_specs(encoder_config(config)), target, **output_specs(config))


def encoder_config(config: Config) -> Config:
    """The encoder's own configuration, out of that of a translation model."""
    return dataclasses.replace(
        config, vocab=config.source_vocab or config.vocab, layers=config.encoder_layers or config.layers
    )


def seq2seq(
    model: Seq2Seq, config: Config, source: Array, target: Array, valid: Array | None = None, key: Array | None = None
) -> Array:
    """source [B,S], of which valid [B,S] are tokens, and target [B,T] -> float32 logits [B,T,V] of the target token after each.

    Vaswani et al. 2017, section 3.1. A key turns dropout on.
    """
    encoder_key, decoder_key = split(key, 2)
    return causal_lm(encode_source(model, config, source, valid, encoder_key), config, target, key=decoder_key)


def encode_source(
    model: Seq2Seq, config: Config, source: Array, valid: Array | None = None, key: Array | None = None
) -> CausalLM:
    """source [B,S], of which valid [B,S] are tokens -> a language model of its translations, row by row, for `causal_lm` or `generate`."""
    reading = model.decoder
    if reading.embed.tokens is None:
        reading = dataclasses.replace(
            reading, embed=dataclasses.replace(reading.embed, tokens=model.encoder.embed.tokens)
        )
    states = encoder(model.encoder, encoder_config(config), source, None if valid is None else padding(valid), key=key)
    return CausalLM(reading, model.table, remember(reading, config, states, valid), model.bias)


def alignment(model: CausalLM, config: Config, target: Array) -> Array:
    """target [B,T] -> float32 [L,B,N,T,S]: how much each of its tokens, in each layer and head, looks at each token of the source.

    Bahdanau et al. 2015, figure 3. Raises ValueError for a model that has read no source.
    """
    if model.memory is None:
        raise ValueError("the model has no memory of a source; make one with tfm.encode_source")
    watched = dataclasses.replace(model.memory, seen=jnp.zeros(model.memory.valid.shape))
    way = Dense(before(config), **placed(model.decoder, config, positions_of(target), both=False))
    x = embed(model.decoder.embed, config, target)
    weights = stack(model.decoder, config, x, *recalling(way, None, watched))[1][1]
    return weights.reshape(*weights.shape[:2], -1, *weights.shape[4:])
