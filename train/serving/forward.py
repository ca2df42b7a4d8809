"""The function that a server calls: token ids in, logits out, under the names that transformers gives them."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import tfm
from tfm.low_rank import merge_low_rank
from train import UserError
from train.files.strict_json import json_text
from train.runs import parity

FACTS = "model.json"

# Batch sizes at which a program is compared with the model.
_BATCHES = (1, 3)


class Forward(NamedTuple):
    """A model as a function of one row of every input; `vmap` makes it one of batches of any size.

    function: (params, *rows) -> output
    inputs: the names of the rows, each int32 [T]
    output: the name of the output, float32
    """

    config: tfm.Config
    params: Any
    function: Callable[..., jax.Array]
    inputs: tuple[str, ...]
    output: str

    @property
    def batched(self) -> Callable[..., jax.Array]:
        """(params, *inputs [B,T]) -> output [B,...]."""
        return jax.vmap(self.function, in_axes=(None, *(0 for _ in self.inputs)))


def forward_of(config: tfm.Config, params: Any) -> Forward:
    """The function of a model, in float32. Raises UserError for a model that has none."""
    config = dataclasses.replace(
        config,
        dtype="float32",
        param_dtype="float32",
        kernel="auto" if jax.default_backend() == "cpu" else "einsum",  # a fused kernel is of one platform
    )
    params = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), merge_low_rank(params))
    if isinstance(params, tfm.Classifier) and params.output is None:
        params = params.encoder  # of a folder without a head
    for kind, (function, inputs) in _FUNCTIONS.items():
        if isinstance(params, kind):
            has_types = "token_type_ids" not in inputs or (config.input.token_types or 0) > 1
            names = inputs if has_types else inputs[:-1]
            output = "last_hidden_state" if kind is tfm.Encoder else "logits"
            return Forward(config, params, _of_rows(function, config), names, output)
    raise UserError(f"a {type(params).__name__} is not a model that servers call; export it with --format=huggingface")


def _of_rows(function: Callable[..., jax.Array], config: tfm.Config) -> Callable[..., jax.Array]:
    """The function of a batch as one of single rows: it need not know how many there are."""
    return lambda params, *rows: function(params, config, *(row[None] for row in rows))[0]


def _encoder(params, config, tokens, valid):
    return tfm.encoder(params, config, tokens, tfm.padding(valid > 0)).astype(jnp.float32)


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


_TEXT = ("input_ids", "attention_mask")

_FUNCTIONS: dict[type, tuple[Callable[..., jax.Array], tuple[str, ...]]] = {
    tfm.Encoder: (_encoder, _TEXT),
    tfm.MaskedLM: (_masked_lm, _TEXT),
    tfm.CausalLM: (_causal_lm, _TEXT[:1]),
    tfm.Classifier: (_classify, (*_TEXT, "token_type_ids")),
    tfm.Tagger: (_classify_tokens, (*_TEXT, "token_type_ids")),
    tfm.Seq2Seq: (_seq2seq, (*_TEXT, "decoder_input_ids")),
}


def differences(
    forward: Forward, length: int, run_program: Callable[[dict[str, np.ndarray]], np.ndarray]
) -> dict[str, float]:
    """The largest differences between the model and a program that was read back, on batches of several sizes.

    Raises UserError if one is not small.
    """
    results = {}
    for rows in _BATCHES:
        inputs = dict(_random_inputs(forward, rows, length))
        expected = jax.jit(forward.batched)(forward.params, *inputs.values())
        actual = jnp.asarray(run_program(inputs))
        name = f"{forward.output}, batch of {rows}"
        results[name] = parity.largest_difference(name, expected, actual)
    return results


def _random_inputs(forward: Forward, rows: int, length: int) -> Iterator[tuple[str, np.ndarray]]:
    """int32 [rows, length] for every input; texts are of different lengths."""
    rng = np.random.default_rng(rows)
    for name in forward.inputs:
        if name == "attention_mask":
            sizes = rng.integers(1, length, rows, endpoint=True)
            yield name, (np.arange(length) < sizes[:, None]).astype(np.int32)
        else:
            high = 2 if name == "token_type_ids" else forward.config.vocab
            yield name, rng.integers(0, high, (rows, length)).astype(np.int32)


def write_facts(folder: Any, forward: Forward, length: int, to: Path, **facts: Any):
    """Writes the tokenizer, and model.json: what goes in and comes out, and the names of the classes."""
    folder.save_processor(to)
    shapes = {name: ["batch", length] for name in forward.inputs}
    description = {
        **facts,
        "task": folder.config.task.name,
        "inputs": {name: {"dtype": "int32", "shape": shape} for name, shape in shapes.items()},
        "output": forward.output,
        "length": length,
        "classes": folder.facts.get("classes"),
    }
    (to / FACTS).write_text(json_text(description, indent=2) + "\n")
