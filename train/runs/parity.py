"""Differences between two models that should be equal: of every layer's states and of the output, on random tokens."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tfm
from tfm.models.encoder import around, before, placed, recalling, remember, unstack, whole
from tfm.models.seq2seq import encoder_config
from tfm.ops import norm


def layer_differences(config: tfm.Config, params: Any, read_config: tfm.Config, read_params: Any) -> dict[str, float]:
    """The largest difference between the states of two models, after the embeddings and after each layer."""
    pairs = zip(_states(config, params), _states(read_config, read_params), strict=True)
    return {name: float(jnp.abs(x - read_x).max()) for (name, x), (_, read_x) in pairs}


def output_difference(config: tfm.Config, params: Any, read_config: tfm.Config, read_params: Any) -> dict[str, float]:
    """The largest difference between the outputs of two models."""
    difference = _output(config, params) - _output(read_config, read_params)
    return {"output": float(jnp.abs(difference)[..., : config.vocab].max())}


def _tokens(vocab: int, length: int, seed: int) -> jax.Array:
    """Two rows of random tokens."""
    return jnp.asarray(np.random.default_rng(seed).integers(0, vocab, (2, min(length, 24))))


def _states(config: tfm.Config, params: Any) -> Iterator[tuple[str, jax.Array]]:
    """After what, and the states, for each layer of each stack; a decoder attends to what the encoder has read."""
    memory = None
    for name in ("encoder", "decoder"):
        model = getattr(params, name, None)
        if model is None:
            continue
        own = encoder_config(config) if name == "encoder" and isinstance(params, tfm.Seq2Seq) else config
        if model.embed.tokens is None:
            model = dataclasses.replace(
                model, embed=dataclasses.replace(model.embed, tokens=params.encoder.embed.tokens)
            )
        for after, x in _through(model, own, name == "encoder", memory):
            yield f"{name} {after}", x
        if isinstance(params, tfm.Seq2Seq) and name == "encoder":
            memory = remember(params.decoder, config, x if model.norm is None else norm(own, model.norm, x))


def _through(model: tfm.Encoder, config: tfm.Config, both: bool, memory: Any) -> Iterator[tuple[str, jax.Array]]:
    """The states of one stack, after the embeddings and after each layer."""
    tokens = _tokens(config.vocab, config.length, seed=both)
    way = tfm.Dense(
        around(config) if both else before(config), **placed(model, config, jnp.arange(tokens.shape[1])[None], both)
    )
    x = tfm.embed(model.embed, config, tokens)
    yield "embeddings", x
    step = jax.jit(
        lambda block, x, past, number: tfm.transformer_block(
            block, config, x, *recalling(way, None, past), None, number
        )[0]
    )
    blocks = (
        unstack(model.blocks, 1) * config.layers
        if config.shared
        else unstack(whole(model.blocks, config), config.layers)
    )
    pasts = [None] * config.layers
    if memory is not None:
        pairs = unstack((memory.keys, memory.values), config.layers)
        pasts = [dataclasses.replace(memory, keys=keys, values=values) for keys, values in pairs]
    for number, (block, past) in enumerate(zip(blocks, pasts, strict=True)):
        x = step(block, x, past, number)
        yield f"layer {number}", x


def _output(config: tfm.Config, params: Any) -> jax.Array:
    """What the whole model predicts."""
    tokens = _tokens(config.vocab, config.length, seed=1)
    if isinstance(params, tfm.MaskedLM):
        hidden = jax.jit(tfm.encoder, static_argnums=1)(params.encoder, config, tokens)
        return tfm.mlm_logits(params.head, config, hidden, params.encoder.embed.tokens)
    if isinstance(params, tfm.Seq2Seq):
        return jax.jit(tfm.seq2seq, static_argnums=1)(params, config, tokens, tokens)
    predict = (
        tfm.causal_lm
        if isinstance(params, tfm.CausalLM)
        else tfm.classify_tokens
        if isinstance(params, tfm.Tagger)
        else tfm.classify
    )
    return jax.jit(predict, static_argnums=1)(params, config, tokens)
