"""The forward passes behind the classes: pure functions, compiled once for a program and for what is to be looked at."""

import functools
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from tfm.attention.attend import Dense, Recorded
from tfm.config.model import Config
from tfm.decoding.cache import Cache, Cached
from tfm.hf import FAMILIES
from tfm.hf.config import Head
from tfm.hf.families.roberta import UNUSED_ROWS
from tfm.hf.flax_layout import Layout
from tfm.hf.names import leaves
from tfm.layers.block import transformer_block, watched_block
from tfm.masks import padding
from tfm.models.encoder import Encoder, before, embed, placed, remember, stack
from tfm.models.heads import (
    CausalLM,
    Classifier,
    MaskedLM,
    Tagger,
    mlm_logits,
    next_logits,
    next_sentence,
    pooled,
    text_logits,
    token_logits,
)
from tfm.models.seq2seq import Seq2Seq, encoder_config
from tfm.ops import split

PAD = 1  # of RoBERTa, whose positions depend on it


class Program(NamedTuple):
    """What a model is: all that a compiled program depends on besides shapes."""

    family: str
    architecture: str
    config: Config

    @property
    def head(self) -> Head:
        """What it predicts."""
        return FAMILIES[self.family].heads[self.architecture]


class Watch(NamedTuple):
    """What else is handed back."""

    attentions: bool = False
    states: bool = False


class Given(NamedTuple):
    """What a stack reads, [B,T] each: tokens, and where they are not the usual ones, which of them are valid, their types and positions."""

    tokens: Array
    valid: Array | None = None
    types: Array | None = None
    positions: Array | None = None

    @property
    def places(self) -> Array:
        """The positions; 0..T-1 unless told."""
        usual = jnp.broadcast_to(jnp.arange(self.tokens.shape[1])[None], self.tokens.shape)
        return usual if self.positions is None else self.positions


@functools.lru_cache(maxsize=64)
def layout(program: Program) -> Layout:
    """Where each parameter of a model stands in the nested dict."""
    family, config = FAMILIES[program.family], program.config
    specs = program.head.specs(config)
    prefix = family.prefix if program.head.kind == "model" else ""
    return Layout(specs, leaves(specs, family.table(config, program.head)), prefix, config.norm == "rms")


def ours(program: Program, params: Any) -> Any:
    """Our parameters, out of the nested dict where it is that."""
    return layout(program).take(params) if isinstance(params, Mapping) else params


@partial(jax.jit, static_argnums=(0, 1))
def encode(program: Program, watch: Watch, params: Any, given: Given, key: Array | None) -> dict[str, Any]:
    """What an encoder and its head say, by the names of their outputs."""
    model, config = ours(program, params), program.config
    stack_key, head_key = split(key, 2)
    if program.family == "roberta":
        given = given._replace(positions=_roberta_positions(given))
    hidden, states, weights = read(model.encoder, config, given, stack_key, watch)
    found = _predicted(program, model, hidden, given.valid, head_key)
    return {**found, "hidden_states": states, "attentions": weights}


@partial(jax.jit, static_argnums=(0, 1))
def encode_source(program: Program, watch: Watch, params: Any, given: Given, key: Array | None) -> dict[str, Any]:
    """The states of a source."""
    hidden, states, weights = read(ours(program, params).encoder, encoder_config(program.config), given, key, watch)
    return {"last_hidden_state": hidden, "hidden_states": states, "attentions": weights}


@partial(jax.jit, static_argnums=(0, 1))
def decode(
    program: Program,
    watch: Watch,
    params: Any,
    given: Given,
    source: tuple[Array, Array | None] | None,
    cache: Cache | None,
    key: Array | None,
) -> dict[str, Any]:
    """Logits of the token after each: of a text, or with the states [B,S,D] and the mask [B,S] of a source, of its translation."""
    model, config = ours(program, params), program.config
    writer = model if source is None else with_source(model, config, *source)
    hidden, found = _written(writer, config, given, cache, key, watch)
    return {"logits": next_logits(writer, config, hidden)[..., : config.vocab], **found}


def with_source(model: Seq2Seq, config: Config, states: Array, valid: Array | None) -> CausalLM:
    """The language model of the translations of what an encoder has read."""
    decoder = model.decoder
    if decoder.embed.tokens is None:
        decoder = replace(decoder, embed=replace(decoder.embed, tokens=model.encoder.embed.tokens))
    return CausalLM(decoder, model.table, remember(decoder, config, states.astype(config.dtype), valid), model.bias)


def read(model: Encoder, config: Config, given: Given, key: Array | None, watch: Watch) -> tuple[Array, Any, Any]:
    """Hidden states [B,T,D] of an encoder; those of each layer and its attention weights, where they are watched."""
    embed_key, stack_key = split(key, 2)
    x = embed(model.embed, config, given.tokens, given.positions, given.types, embed_key)
    look = Recorded if watch.attentions else Dense
    way = look(None if given.valid is None else padding(given.valid), **placed(model, config, given.places, both=True))
    hidden, states, found = _through(model, config, x, (way, None), stack_key, watch)
    return hidden, states, _by_layer(found)


def _through(
    model: Encoder, config: Config, x: Array, ways: tuple, key: Array | None, watch: Watch
) -> tuple[Array, Any, Any]:
    """Through the stack: the last states, what each layer has read and the last states, and what its way of attending hands back."""
    hidden, found = stack(model, config, x, ways[0], ways[1], key, watched_block if watch.states else transformer_block)
    if not watch.states:
        return hidden, None, found
    inputs, found = found
    return hidden, (*jnp.unstack(inputs), hidden), found


def _by_layer(weights: Array | None) -> tuple[Array, ...] | None:
    """[L,B,K,G,T,S] -> for each layer [B,N,T,S]."""
    return None if weights is None else tuple(jnp.unstack(weights.reshape(*weights.shape[:2], -1, *weights.shape[4:])))


def _written(
    model: CausalLM, config: Config, given: Given, cache: Cache | None, key, watch: Watch
) -> tuple[Array, dict[str, Any]]:
    """The states of a decoder, which continues what is in the cache, and the other outputs."""
    embed_key, stack_key = split(key, 2)
    if cache is not None and given.positions is None:
        given = given._replace(positions=cache.length + given.places)
    x = embed(model.decoder.embed, config, given.tokens, given.positions, key=embed_key)
    mask = before(config, None if given.valid is None else padding(given.valid))
    where, look = placed(model.decoder, config, given.places, both=False), Recorded if watch.attentions else Dense
    ways: tuple = (look(mask, **where), None)
    if cache is not None:
        ways = Cached(mask, length=cache.length, **where), (cache.keys, cache.values)
    if model.memory is not None:
        way, own = ways
        ways = (way, look(padding(model.memory.valid))), (own, (model.memory.keys, model.memory.values))
    hidden, states, found = _through(model.decoder, config, x, ways, stack_key, watch)
    found, crossed = found if model.memory is not None else (found, None)
    outputs = {"past_key_values": None if cache is None else _extended(cache, found), "hidden_states": states}
    return hidden, {
        **outputs,
        "attentions": None if cache is not None else _by_layer(found),
        "cross_attentions": _by_layer(crossed),
    }


def _extended(cache: Cache, made: tuple[Array, Array]) -> Cache:
    """The cache with the keys and values [L,B,T,K,H] of more tokens."""
    write = lambda slots, new: jax.lax.dynamic_update_slice_in_dim(slots, new, cache.length, axis=2)
    keys, values = (write(old, new) for old, new in zip((cache.keys, cache.values), made, strict=True))
    return replace(cache, keys=keys, values=values, length=cache.length + made[0].shape[2])


def _roberta_positions(given: Given) -> Array:
    """Positions count the tokens that are no padding; theirs begin behind the rows that our table leaves out."""
    if given.positions is not None:
        return jnp.maximum(given.positions - UNUSED_ROWS, 0)
    real = given.tokens != PAD
    return jnp.where(real, jnp.cumsum(real, axis=1) - 1, 0)


def _predicted(program: Program, model: Any, hidden: Array, valid: Array | None, key: Array | None) -> dict[str, Any]:
    """What a head says of hidden states [B,T,D]."""
    config, name = program.config, program.architecture
    if isinstance(model, MaskedLM):
        logits = mlm_logits(model.head, config, hidden, model.encoder.embed.tokens)[..., : config.vocab]
        if model.next is None:
            return {"logits": logits}
        pair = "sop_logits" if program.family == "albert" else "seq_relationship_logits"
        return {"prediction_logits": logits, pair: next_sentence(model, config, hidden)}
    if isinstance(model, Tagger):
        logits = token_logits(model, config, hidden, key)
        if name.endswith("QuestionAnswering"):
            return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}
        return {"logits": logits[..., 0] if name.endswith("PreTraining") else logits}
    assert isinstance(model, Classifier)
    if model.output is not None:
        return {"logits": text_logits(model, config, hidden, valid, key)}
    return {
        "last_hidden_state": hidden,
        "pooler_output": model.pooler and pooled(model.pooler, model.norm, config, hidden[:, 0]),
    }
