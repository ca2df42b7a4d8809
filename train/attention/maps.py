"""The attention weights of a text, in every layer and head of a trained model."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax import Array

import tfm
from tfm.models.encoder import pass_context
from tfm.params import PyTree
from train import UserError
from train.screens.console import Log
from train.tasks.record import AttendedRow, Folder
from train.text import control_tokens
from train.text.special import AnyTokenizer, target_tokenizer

# The weights that a page may hold, of a byte each.
MAX_WEIGHTS = 32_000_000


# Of every layer [1,K,G,T,S], or None.
Weights = list[Array | None]


class AttentionMap(NamedTuple):
    """Attention weights of a text.

    title: who attends to whom
    queries, keys: their tokens
    layers: the weights float32 [N,T,S] of each layer, by its number from 1; layers without weights are left out
    """

    title: str
    queries: list[str]
    keys: list[str]
    layers: dict[int, np.ndarray]


def attention_maps(params: PyTree, folder: Folder, row: AttendedRow, log: Log) -> list[AttentionMap]:
    """The maps of a row; of a translation model those between translation and source, of the encoder and the decoder.

    Raises UserError for a row that is too long, and for a model without weights between tokens.
    """
    if isinstance(params, tfm.Seq2Seq):
        maps = _translation(params, folder, row.tokens, log)
    else:
        maps = [_one_row(params, folder, row)]
    maps = [shown for shown in maps if shown.layers]
    if not maps:
        mixer = folder.config.model.mixer.name
        raise UserError(f"--attention draws weights between tokens, and --model.mixer={mixer} has none; leave it out")
    return maps


def _one_row(params: PyTree, folder: Folder, row: AttendedRow) -> AttentionMap:
    """The map of an encoder or of a decoder."""
    model, count = folder.config.model, len(row.tokens)
    _check_size(model, count, count)
    tokens = _spelled(folder.processor, row.tokens)
    if isinstance(params, tfm.CausalLM):
        layers = _weights(params.decoder, model, row.tokens[None], None, True)
        return AttentionMap("decoder", tokens, tokens, _by_layer(layers, count))
    params = tfm.discriminator_of(params) if isinstance(params, tfm.ReplacedDetector) else params
    types = (np.arange(count) >= row.second).astype(np.int32)
    layers = _weights(params.encoder, model, row.tokens[None], types[None], False)
    return AttentionMap("encoder", tokens, tokens, _by_layer(layers, count))


def _translation(params: tfm.Seq2Seq, folder: Folder, source: np.ndarray, log: Log) -> list[AttentionMap]:
    """The maps between the translation and its source [S], of the encoder, and of the decoder."""
    from train.tasks.translate import marks, translation

    run, tokenizer = folder.config, folder.processor
    template = marks.template(tokenizer, run.task)
    text = tokenizer.decode(source.tolist(), skip_special_tokens=True)
    (written,) = translation.translate(params, run, tokenizer, [text], log, 1)
    (target_ids,) = control_tokens.encode(target_tokenizer(tokenizer), [written])
    target = np.asarray([*template.decoder_prefix, *target_ids.ids], np.int32)
    _check_size(run.model, max(len(source), len(target)), len(source))
    encoder_layers = _weights(params.encoder, tfm.encoder_config(run.model), source[None], None, False)
    own, cross = _decoder_weights(params, run.model, source[None], target[None])
    sources, targets = _spelled(tokenizer, source), _spelled(target_tokenizer(tokenizer), target)
    return [
        AttentionMap("decoder to encoder", targets, sources, _by_layer(cross, len(source))),
        AttentionMap("encoder", sources, sources, _by_layer(encoder_layers, len(source))),
        AttentionMap("decoder", targets, targets, _by_layer(own, len(target))),
    ]


@partial(jax.jit, static_argnums=(1, 4))
def _weights(model: tfm.Encoder, config: tfm.Config, tokens: Array, types: Array | None, causal: bool) -> Weights:
    """tokens [1,T] -> the weights [1,K,G,T,S] of every layer, or None."""
    x = tfm.embed(model.embed, config, tokens, types=types)
    context = replace(pass_context(x, None, None, causal), record=True)
    return [output.weights for output in tfm.by_layer(config, tfm.stack(model, config, x, context)[1])]


@partial(jax.jit, static_argnums=1)
def _decoder_weights(params: tfm.Seq2Seq, config: tfm.Config, source: Array, target: Array) -> tuple[Weights, ...]:
    """source [1,S], target [1,T] -> the weights of every layer, to the target and to the source."""
    model = tfm.encode_source(params, config, source)
    x = tfm.embed(model.decoder.embed, config, target)
    context = replace(pass_context(x, None, None, causal=True), record=True)
    outputs = tfm.by_layer(config, tfm.stack(model.decoder, config, x, context, memory=model.memory)[1])
    return [output.weights for output in outputs], [output.cross_weights for output in outputs]


def _by_layer(layers: Sequence[Array | None], keys: int) -> dict[int, np.ndarray]:
    """Weights [1,K,G,T,S] -> [N,T,S] by layer; those of a mixer whose keys are no tokens are left out."""
    return {
        layer: np.asarray(weights, np.float32)[0].reshape(-1, *weights.shape[-2:])
        for layer, weights in enumerate(layers, start=1)
        if weights is not None and weights.shape[-1] == keys
    }


def _check_size(model: tfm.Config, queries: int, keys: int) -> None:
    """Raises UserError for more tokens than the model has positions, or than a page can hold."""
    if model.max_length is not None and queries > model.max_length:
        raise UserError(f"--text has {queries} tokens, and the model has {model.max_length} positions; shorten it")
    if (size := model.layers * model.heads * queries * keys) > MAX_WEIGHTS:
        raise UserError(
            f"--attention of {queries} tokens has {size:,} weights, at most {MAX_WEIGHTS:,}; shorten --text"
        )


def _spelled(tokenizer: AnyTokenizer, tokens: np.ndarray) -> list[str]:
    """The text of every token; its name where it has none."""
    decoded = [tokenizer.decode([token], skip_special_tokens=False).strip() for token in tokens.tolist()]
    return [text or tokenizer.id_to_token(token) or "" for text, token in zip(decoded, tokens.tolist(), strict=True)]
