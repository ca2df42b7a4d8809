"""Translation models: an encoder reads a source, and a decoder that attends to its states writes."""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.attention.project import keys_values, swap_heads
from tfm.config.model import Config
from tfm.inputs import default_positions
from tfm.interfaces import AttentionContext, Block, Memory
from tfm.layers.stack import by_layer, map_layers, stack
from tfm.masks.by_example import padding
from tfm.masks.by_example import segments as segment_mask
from tfm.models.encoder import Encoder, encoder, encoder_specs
from tfm.models.heads import CausalLM, causal_lm, check_reads_tokens, output_specs
from tfm.ops import split
from tfm.params import PyTree
from tfm.tables.inputs import embed


@struct.dataclass
class Seq2Seq:
    """An encoder, and a decoder that attends to its states; tables [V,D] that both share are stored in the encoder."""

    encoder: Encoder
    decoder: Encoder
    table: Array | None
    bias: Array | None = None


def seq2seq_specs(config: Config) -> Seq2Seq:
    """The spec tree of the first Transformer (Vaswani et al. 2017).

    Source, target and output share one table, unless `config.encoder` has a vocabulary or an input of its own, or
    `config.tie_embeddings` says otherwise.
    """
    check_reads_tokens(config)
    target = encoder_specs(config, cross=True)
    if config.encoder.vocab is None and config.encoder.input is None:
        target = dataclasses.replace(target, embed=dataclasses.replace(target.embed, tokens=None))
    return Seq2Seq(encoder_specs(encoder_config(config)), target, **output_specs(config))


def encoder_config(config: Config) -> Config:
    """The configuration of the encoder, out of that of a translation model."""
    return config.in_encoder()


def seq2seq(
    model: Seq2Seq, config: Config, source: PyTree, target: Array, valid: Array | None = None, key: Array | None = None
) -> Array:
    """source [B,S], or what `config.encoder.input` reads, of which valid [B,S] are tokens, and target [B,T] -> float32
    logits [B,T,V] of the target token after each.

    Vaswani et al. 2017, section 3.1. A key turns dropout on. Raises ValueError as `encoder` and `decoder` do.
    """
    encoder_key, decoder_key = split(key, 2)
    return causal_lm(encode_source(model, config, source, valid, encoder_key), config, target, key=decoder_key)


def encode_source(
    model: Seq2Seq, config: Config, source: PyTree, valid: Array | None = None, key: Array | None = None
) -> CausalLM:
    """source [B,S], or what `config.encoder.input` reads, of which valid [B,S] are tokens -> a language model of its
    translations, for `causal_lm` or `generate`. Raises ValueError as `encoder` does."""
    mask = None if valid is None else padding(valid)
    with jax.named_scope("encoder"):
        states = encoder(model.encoder, encoder_config(config), source, mask, key=key)
    return with_states(model, config, states, valid)


def encode_packed(
    model: Seq2Seq,
    config: Config,
    source: Array,
    positions: Array,
    segments: tuple[Array, Array],
    key: Array | None = None,
) -> CausalLM:
    """source [B,S] of several texts a row -> a language model of their translations, for `decoder`.

    positions: int32 [B,S], within each text
    segments: ids of the texts, int32 [B,S] of the source and [B,T] of the target; a target sees the source with its own

    Raises ValueError for a model that cannot keep the texts of a row apart.
    """
    if not config.reads_packed:
        raise ValueError("the model cannot keep the texts of a row apart; give each text a row, and call encode_source")
    of_source, of_target = segments
    with jax.named_scope("encoder"):
        mask = segment_mask(of_source)
        states = encoder(model.encoder, encoder_config(config), source, mask, positions, key=key)
    decoder = decoder_of(model)
    memory = cross_keys_values(decoder, config, states, of_source > 0)
    memory = dataclasses.replace(memory, mask=segment_mask(of_target, of_source))
    return CausalLM(decoder, model.table, memory, model.bias)


def with_states(model: Seq2Seq, config: Config, states: Array, valid: Array | None = None) -> CausalLM:
    """states [B,S,D] of the encoder, of which valid [B,S] are tokens -> a language model of translations."""
    decoder = decoder_of(model)
    return CausalLM(decoder, model.table, cross_keys_values(decoder, config, states, valid), model.bias)


def decoder_of(model: Seq2Seq) -> Encoder:
    """The decoder, with the table of tokens that it shares with the encoder, if it does."""
    decoder = model.decoder
    if decoder.embed.tokens is not None:
        return decoder
    return dataclasses.replace(decoder, embed=dataclasses.replace(decoder.embed, tokens=model.encoder.embed.tokens))


def cross_keys_values(decoder: Encoder, config: Config, states: Array, valid: Array | None = None) -> Memory:
    """states [B,S,D] of an encoder, of which valid [B,S] are tokens -> a memory for the decoder."""

    def of_layer(block: Block) -> tuple[Array, ...]:
        return tuple(map(swap_heads, keys_values(block.cross, config, states)))

    layers = map_layers(of_layer, config, decoder.layers)
    return Memory(layers, jnp.ones(states.shape[:2], bool) if valid is None else valid)


def alignment(model: CausalLM, config: Config, target: Array) -> Array:
    """target [B,T] -> float32 [L,B,N,T,S]: the attention of its tokens to those of the source, in each layer and head.

    Bahdanau et al. 2015, figure 3. Raises ValueError for a model without a memory.
    """
    if model.memory is None:
        raise ValueError("the model has no memory of a source; make one with tfm.encode_source")
    context = AttentionContext(default_positions(target), causal=True, record=True)
    x = embed(model.decoder.embed, config, target)
    outputs = by_layer(config, stack(model.decoder, config, x, context, memory=model.memory)[1])
    weights = jnp.stack([output.cross_weights for output in outputs])
    return weights.reshape(*weights.shape[:2], -1, *weights.shape[4:])
