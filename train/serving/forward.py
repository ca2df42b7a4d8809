"""The function that a server calls: tokens or pixels in, logits out, under the names that transformers gives them."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import tfm
from tfm.low_rank import merge_low_rank
from tfm.params import PyTree
from train import UserError
from train.files.strict_json import json_text
from train.images.model_processor import picture_shape
from train.runs import parity
from train.runs.hf_folder import HfFolder
from train.runs.run_folder import RunFolder
from train.settings.images import video_frames
from train.settings.sounds import reads_frames

FACTS = "model.json"

# Batch sizes at which a program is compared with the model.
_BATCHES = (1, 3)


class Forward(NamedTuple):
    """A model as a function of one row of every input; `vmap` makes it one of batches of any size.

    function: (params, *rows) -> output
    inputs: the rows by name: int32 [T] of tokens, float32 [C,H,W] of a picture
    output: the name of the output, float32
    """

    config: tfm.Config
    params: PyTree
    function: Callable[..., jax.Array]
    inputs: dict[str, jax.ShapeDtypeStruct]
    output: str

    @property
    def batched(self) -> Callable[..., jax.Array]:
        """(params, *inputs [B,...]) -> output [B,...]."""
        return jax.vmap(self.function, in_axes=(None, *(0 for _ in self.inputs)))

    def batch(self, size: object) -> list[jax.ShapeDtypeStruct]:
        """The inputs of a batch of `size` rows: a number, or a symbol of jax.export."""
        return [jax.ShapeDtypeStruct((size, *row.shape), row.dtype) for row in self.inputs.values()]


def forward_of(config: tfm.Config, params: PyTree, length: int, task: str = "") -> Forward:
    """The function of a model that a task has trained, in float32, for rows of `length` tokens or for pictures.

    Raises UserError for a model that has none.
    """
    config = dataclasses.replace(
        config,
        dtype="float32",
        param_dtype="float32",
        kernel="auto" if jax.default_backend() == "cpu" else "einsum",  # a fused kernel is of one platform
    )
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), merge_low_rank(params))
    if isinstance(params, tfm.Classifier) and params.output is None:
        params = params.encoder
    function, names, output = _function(config, type(params), task)
    row = jax.ShapeDtypeStruct((length,), jnp.int32)
    inputs = {name: _picture_row(config) if name == _PICTURE else row for name in names}
    return Forward(config, params, _of_rows(function, config), inputs, output)


def _function(config: tfm.Config, kind: type, task: str) -> "_Function":
    """The function of a batch, and the names of its inputs and of its output."""
    if task == "late":
        raise UserError("vectors of tokens are no output that servers call; export them with --format=huggingface")
    if task == "contrast" and kind is tfm.Encoder:
        return _vectors, _TEXT, "sentence_embedding"
    if reads_frames(config.input) or video_frames(config.input) or config.encoder.input is not None:
        raise UserError(
            "a model of sounds or videos is not a model that servers call; export it with --format=huggingface"
        )
    functions = _OF_TEXTS if config.input.grid is None else _OF_PICTURES
    if kind not in functions:
        raise UserError(f"a {kind.__name__} is not a model that servers call; export it with --format=huggingface")
    function, names, output = functions[kind]
    if "token_type_ids" in names and config.sizes.get("Y", 0) < 2:
        names = names[:-1]
    return function, names, output


def _picture_row(config: tfm.Config) -> jax.ShapeDtypeStruct:
    """A picture as processors of transformers make it, float32 [C,H,W]."""
    height, width, channels = picture_shape(config)
    return jax.ShapeDtypeStruct((channels, height, width), jnp.float32)


def _of_rows(function: Callable[..., jax.Array], config: tfm.Config) -> Callable[..., jax.Array]:
    """The function of a batch as one of single rows: it need not know how many there are."""
    return lambda params, *rows: function(params, config, *(row[None] for row in rows))[0]


def _encoder(params, config, tokens, valid):
    return tfm.encoder(params, config, tokens, tfm.padding(valid > 0)).astype(jnp.float32)


def _vectors(params, config, tokens, valid):
    hidden = _encoder(params, config, tokens, valid)
    return tfm.unit_vectors(tfm.pool(hidden, valid > 0, config.head.pool))


def _masked_lm(params, config, tokens, valid):
    hidden = tfm.encoder(params.encoder, config, tokens, tfm.padding(valid > 0))
    return tfm.mlm_logits(params.head, config, hidden, params.encoder.embed.tokens)[..., : config.vocab]


def _causal_lm(params, config, tokens):
    return tfm.causal_lm(params, config, tokens)[..., : config.outputs]


def _classify(params, config, tokens, valid, types=None):
    return tfm.classify(params, config, tokens, valid > 0, types)


def _classify_tokens(params, config, tokens, valid, types=None):
    return tfm.classify_tokens(params, config, tokens, valid > 0, types)


def _seq2seq(params, config, tokens, valid, target):
    return tfm.seq2seq(params, config, tokens, target, valid > 0)[..., : config.vocab]


def _classify_pictures(params, config, pixels):
    return tfm.classify(params, config, pixels.transpose(0, 2, 3, 1))


def _encode_pictures(params, config, pixels):
    return tfm.encoder(params, config, pixels.transpose(0, 2, 3, 1)).astype(jnp.float32)


_TEXT, _PAIR, _PICTURE = ("input_ids", "attention_mask"), ("token_type_ids",), "pixel_values"
_Function = tuple[Callable[..., jax.Array], tuple[str, ...], str]

_OF_TEXTS: dict[type, _Function] = {
    tfm.Encoder: (_encoder, _TEXT, "last_hidden_state"),
    tfm.MaskedLM: (_masked_lm, _TEXT, "logits"),
    tfm.CausalLM: (_causal_lm, _TEXT[:1], "logits"),
    tfm.Classifier: (_classify, (*_TEXT, *_PAIR), "logits"),
    tfm.Tagger: (_classify_tokens, (*_TEXT, *_PAIR), "logits"),
    tfm.Seq2Seq: (_seq2seq, (*_TEXT, "decoder_input_ids"), "logits"),
}
_OF_PICTURES: dict[type, _Function] = {
    tfm.Encoder: (_encode_pictures, (_PICTURE,), "last_hidden_state"),
    tfm.Classifier: (_classify_pictures, (_PICTURE,), "logits"),
}


def differences(forward: Forward, run_program: Callable[[dict[str, np.ndarray]], np.ndarray]) -> dict[str, float]:
    """The largest differences between the model and a program that was read back, on batches of several sizes.

    Raises UserError if one is not small.
    """
    results = {}
    for rows in _BATCHES:
        inputs = dict(_random_inputs(forward, rows))
        expected = jax.jit(forward.batched)(forward.params, *inputs.values())
        actual = jnp.asarray(run_program(inputs))
        name = f"{forward.output}, batch of {rows}"
        results[name] = parity.largest_difference(name, expected, actual)
    return results


def _random_inputs(forward: Forward, rows: int) -> Iterator[tuple[str, np.ndarray]]:
    """[rows, ...] of every input; texts are of different lengths."""
    rng = np.random.default_rng(rows)
    for name, row in forward.inputs.items():
        shape = (rows, *row.shape)
        if name == _PICTURE:
            yield name, rng.normal(size=shape).astype(np.float32)
        elif name == "attention_mask":
            sizes = rng.integers(1, shape[1], rows, endpoint=True)
            yield name, (np.arange(shape[1]) < sizes[:, None]).astype(np.int32)
        else:
            high = 2 if name == "token_type_ids" else forward.config.vocab
            yield name, rng.integers(0, high, shape).astype(np.int32)


def write_facts(folder: RunFolder | HfFolder, forward: Forward, to: Path, **facts: object):
    """Writes the tokenizer or the processor, and model.json: what goes in and comes out, and the classes."""
    folder.save_processor(to)
    inputs = {name: {"dtype": row.dtype.name, "shape": ["batch", *row.shape]} for name, row in forward.inputs.items()}
    description = {
        **facts,
        "task": folder.config.task.name,
        "inputs": inputs,
        "output": forward.output,
        "length": None if _PICTURE in inputs else next(iter(forward.inputs.values())).shape[0],
        "classes": folder.facts.get("classes"),
    }
    (to / FACTS).write_text(json_text(description, indent=2) + "\n")
