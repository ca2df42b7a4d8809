"""The forward passes behind the classes: pure functions, compiled once for a program and for what they record."""

import functools
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm.catalogue.studies.pruning import head_gates, with_gates
from tfm.compat.families import COUNT_TOKENS, FAMILIES, Seq2SeqReader, is_bare
from tfm.compat.predictions import Results, predictions, reader_predictions
from tfm.config.model import Config
from tfm.decoding.cache import Cache, prefill, write_cache
from tfm.hf.family import HfHead
from tfm.hf.flax_layout import Layout
from tfm.hf.parameters import leaves
from tfm.inputs import MaskedPixels, default_positions
from tfm.interfaces import AttentionContext
from tfm.layers.stack import Layers, by_layer, stack
from tfm.masks.by_example import padding
from tfm.models.encoder import Encoder
from tfm.models.heads import CausalLM, next_logits
from tfm.models.seq2seq import Seq2Seq, encoder_config, with_states
from tfm.norms import norm
from tfm.ops import split
from tfm.params import PyTree, abstract
from tfm.tables.inputs import embed

PAD = 1  # of RoBERTa: the token, and its position


class Program(NamedTuple):
    """What a compiled program depends on besides shapes; `causal`: no token of an encoder sees a later one."""

    family: str
    architecture: str
    config: Config
    causal: bool = False

    @property
    def head(self) -> HfHead:
        """What it predicts."""
        return FAMILIES[self.family].heads[self.architecture]


class Record(NamedTuple):
    """What of the layers is returned too."""

    attentions: bool = False
    hidden_states: bool = False


class Inputs(NamedTuple):
    """What a stack reads.

    tokens: [B,T]; for an encoder of images, their pixels [B,H,W,C]
    valid: True for a token and False for padding, [B,T]; for a decoder that continues, [B,S] of all slots
    types, positions: [B,T], or None for the usual ones
    head_mask: what the attention weights of each head are multiplied by, [L,N]
    masked_patches: patches of images that are masked, [B,P]; None: none are
    """

    tokens: Array
    valid: Array | None = None
    types: Array | None = None
    positions: Array | None = None
    head_mask: Array | None = None
    masked_patches: Array | None = None


@struct.dataclass
class PastKeyValues:
    """The decode cache, and how many tokens fit into it."""

    cache: Cache
    max_length: int = struct.field(pytree_node=False)


@functools.lru_cache(maxsize=64)
def layout(program: Program) -> Layout:
    """Where the parameters of a model are in the nested dict."""
    family, config = FAMILIES[program.family], program.config
    specs = program.head.specs(config)
    prefix = family.prefix if is_bare(program.architecture) else ""
    return Layout(specs, leaves(specs, family.table(config, program.head)), prefix, config.norm == "rms", family.unused)


def take_params(program: Program, params: PyTree) -> PyTree:
    """Parameters of a model, taken out of the nested dict where they are that."""
    return layout(program).take(params) if isinstance(params, Mapping) else params


@partial(jax.jit, static_argnums=(0, 1))
def encode(program: Program, record: Record, params: PyTree, inputs: Inputs, key: Array | None) -> Results:
    """The results of an encoder and its head, by name."""
    model = take_params(program, params)
    stack_key, head_key = split(key, 2)
    if program.family in COUNT_TOKENS:
        inputs = inputs._replace(positions=_roberta_positions(inputs))
    config = encoder_config(program.config)
    hidden, recorded = encoder_states(model.encoder, config, record, inputs, stack_key, program.causal)
    return predictions(program.architecture, config, model, hidden, inputs.valid, head_key) | recorded


@partial(jax.jit, static_argnums=(0, 1))
def encode_source(program: Program, record: Record, params: PyTree, inputs: Inputs, key: Array | None) -> Results:
    """The hidden states of a source."""
    model = take_params(program, params)
    hidden, recorded = encoder_states(model.encoder, encoder_config(program.config), record, inputs, key)
    return {"last_hidden_state": hidden, **recorded}


@partial(jax.jit, static_argnums=(0, 1))
def decode(
    program: Program,
    record: Record,
    params: PyTree,
    inputs: Inputs,
    source: tuple[Array, Array | None] | None,
    past: PastKeyValues | None,
    key: Array | None,
) -> Results:
    """Logits of the token after each, or hidden states where there is no output for tokens, and what else a decoder
    returns, by name.

    With a source, its hidden states [B,S,D] and which of them are tokens [B,S], it is a translation.
    """
    model, config = take_params(program, params), program.config
    writer = model if source is None else source_writer(model, config, *source)
    hidden, results = _decoder(writer, config, record, inputs, past, key)
    if is_bare(program.architecture) or isinstance(model, Seq2SeqReader):
        return {"last_hidden_state": hidden, **results}
    return {"logits": next_logits(writer, config, hidden)[..., : config.vocab], **results}


@partial(jax.jit, static_argnums=0)
def read_states(program: Program, params: PyTree, hidden: Array, is_end: Array) -> dict[str, Array]:
    """What outputs predict from the states [B,T,D] of a decoder that read a text, by name; is_end [B,T] tells the
    tokens that end one."""
    return reader_predictions(take_params(program, params), hidden, is_end)


def source_writer(model: Seq2Seq | Seq2SeqReader, config: Config, states: Array, valid: Array | None) -> CausalLM:
    """states [B,S,D] of a source, of which valid [B,S] are tokens -> a language model of its translations."""
    model = model.seq2seq if isinstance(model, Seq2SeqReader) else model
    return with_states(model, config, states.astype(config.dtype), valid)


def empty_cache(program: Program, rows: int, slots: int) -> PastKeyValues:
    """A cache without tokens. A pass over one token, of which only shapes are computed, says what it consists of."""
    config = program.config
    starts = jnp.zeros(rows, jnp.int32)

    def states(model: PyTree) -> Layers:
        if isinstance(model, Seq2Seq | Seq2SeqReader):
            model = source_writer(model, config, jnp.zeros((rows, 1, config.width)), None)
        return prefill(model.decoder, config, starts[:, None], starts, slots, model.memory)[1].states

    shapes = jax.eval_shape(states, abstract(layout(program).specs))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return PastKeyValues(Cache(zeros, starts, jnp.int32(0), slots), slots)


def encoder_states(
    model: Encoder, config: Config, record: Record, inputs: Inputs, key: Array | None, causal: bool = False
) -> tuple[Array, Results]:
    """Hidden states [B,T,D] of an encoder, and what is recorded."""
    if inputs.head_mask is not None:
        model = _with_head_mask(model, inputs.head_mask)
    embed_key, stack_key = split(key, 2)
    read = inputs.tokens if inputs.masked_patches is None else MaskedPixels(inputs.tokens, inputs.masked_patches)
    x = embed(model.embed, config, read, inputs.positions, inputs.types, embed_key)
    positions = default_positions(x) if inputs.positions is None else inputs.positions
    mask = None if inputs.valid is None else padding(inputs.valid)
    context = AttentionContext(
        positions, mask, causal=causal, record=record.attentions, record_inputs=record.hidden_states
    )
    # Of an encoder of images, the last of the hidden states is that before the last norm.
    late_norm = None if config.input.grid is None else model.norm
    hidden, outputs = stack(replace(model, norm=None if late_norm else model.norm), config, x, context, key=stack_key)
    recorded = _recorded(config, record, hidden, outputs)
    hidden = hidden if late_norm is None else norm(config, late_norm, hidden)
    attentions = recorded["attentions"]
    if attentions is not None and inputs.head_mask is not None:
        layers = zip(attentions, inputs.head_mask, strict=True)
        attentions = tuple(weights * heads[None, :, None, None] for weights, heads in layers)
    return hidden, {"hidden_states": recorded["hidden_states"], "attentions": attentions}


def _with_head_mask(model: Encoder, head_mask: Array) -> Encoder:
    """The encoder whose heads are multiplied by a mask [L,N]."""
    gates = head_gates(model)
    return with_gates(model, {name: head_mask.reshape(ones.shape) for name, ones in gates.items()})


def _decoder(
    model: CausalLM, config: Config, record: Record, inputs: Inputs, past: PastKeyValues | None, key: Array | None
) -> tuple[Array, Results]:
    """Hidden states [B,T,D] of a decoder, which continues the tokens in the cache, and its other results."""
    embed_key, stack_key = split(key, 2)
    cache = None if past is None else past.cache
    length = 0 if cache is None else cache.length
    positions = default_positions(inputs.tokens) + length if inputs.positions is None else inputs.positions
    x = embed(model.decoder.embed, config, inputs.tokens, positions, key=embed_key)
    context = AttentionContext(
        positions,
        mask=None if inputs.valid is None else padding(inputs.valid),
        length=length,
        slots=None if cache is None else cache.slots,
        causal=True,
        keep=cache is not None,
        record=record.attentions,
        record_inputs=record.hidden_states,
    )
    states = None if cache is None else cache.states
    hidden, outputs = stack(model.decoder, config, x, context, states, model.memory, stack_key)
    results = _recorded(config, record, hidden, outputs)
    if past is not None and cache is not None:
        results["past_key_values"] = replace(past, cache=write_cache(config, cache, outputs, inputs.tokens.shape[1]))
    return hidden, results


def _recorded(config: Config, record: Record, hidden: Array, outputs: Layers) -> Results:
    """By name what is recorded, None for what is not: a tuple with an array for each layer."""
    layers = by_layer(config, outputs)
    states = (*(layer.inputs for layer in layers), hidden)
    return {
        "hidden_states": states if record.hidden_states else None,
        "attentions": _merge_heads([layer.weights for layer in layers]),
        "cross_attentions": _merge_heads([layer.cross_weights for layer in layers]),
    }


def _merge_heads(weights: list[Array | None]) -> tuple[Array, ...] | None:
    """Attention weights [B,K,G,T,S] of each layer -> [B,N,T,S]; None where they are not recorded."""
    recorded = [layer for layer in weights if layer is not None]
    return tuple(layer.reshape(len(layer), -1, *layer.shape[3:]) for layer in recorded) or None


def _roberta_positions(inputs: Inputs) -> Array:
    """Positions count the tokens that are no padding, and begin behind that of padding."""
    if inputs.positions is not None:
        return inputs.positions
    is_token = inputs.tokens != PAD
    return jnp.where(is_token, jnp.cumsum(is_token, axis=1), 0) + PAD
