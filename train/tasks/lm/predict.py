"""Log-probabilities of texts under a language model: what train.predict says of lines, and the harness of tasks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from train.data.batching import length_sorted_batches
from train.data.fields import Field
from train.data.sources import files
from train.metrics import scores
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.predict import PredictOptions
from train.tasks.attended import unmarked
from train.tasks.record import AttendedRow, Folder, Prediction, Predictor
from train.text import control_tokens

# The fields of a batch to score.
BATCH_SPEC = {
    "tokens": Field("BT", np.int32),
    "where": Field("BM", np.int32),
    "targets": Field("BM", np.int32),
    "weights": Field("BM", np.float32),
}


class Window(NamedTuple):
    """Tokens of a text that fit into a row, and how many of the last ones are scored."""

    text: int
    tokens: Sequence[int]
    scored: int


def make_batch(windows: Sequence[Window], max_length: int) -> dict[str, np.ndarray]:
    """Tokens [B,T], right-padded, and places [B,M], targets [B,M] and weights [B,M] of the scored tokens.

    T and M are buckets, so that few programs are compiled.
    """
    length = min(tfm.bucket(max(len(window.tokens) for window in windows) - 1), max_length)
    scored = min(tfm.bucket(max(window.scored for window in windows)), length)
    sizes = {"B": len(windows), "T": length, "M": scored}
    batch: dict[str, np.ndarray] = {
        name: np.zeros([sizes[axis] for axis in field.axes], field.dtype) for name, field in BATCH_SPEC.items()
    }
    for row, (_, tokens, count) in enumerate(windows):
        end = len(tokens) - 1
        batch["tokens"][row, :end] = tokens[:-1]
        batch["where"][row, :count] = np.arange(end - count, end)
        batch["targets"][row, :count] = tokens[-count:]
        batch["weights"][row, :count] = 1
    return batch


def score(
    params: tfm.CausalLM, model: tfm.Config, batch: Mapping[str, Array], key: Array | None = None
) -> dict[str, Array]:
    """`logprob` [B], of all targets of a row, and `greedy` [B], whether each target is the most probable token.

    Only the places of targets are multiplied with the vocabulary.
    """
    hidden = tfm.decoder(params.decoder, model, batch["tokens"])
    logits = tfm.next_logits(params, model, tfm.take_positions(hidden, batch["where"]))
    greedy = (logits.argmax(-1) == batch["targets"]) | (batch["weights"] == 0)
    return {
        "logprob": -(tfm.cross_entropy(logits, batch["targets"]) * batch["weights"]).sum(-1),
        "greedy": jnp.all(greedy, -1),
    }


def inputs(options: PredictOptions, folder: Folder) -> list[str]:
    """The texts to score: a text, or the lines or rows of a file; empty ones stay."""
    data = folder.config.data
    if options.text:
        return [options.text]
    return files.read_texts(Path(options.file), data, options.field or data.field)


def predict(params: tfm.CausalLM, folder: Folder, texts: Sequence[str], log: Log, batch: int) -> Iterator[Prediction]:
    """The perplexity of a token of each text, and bits a byte; nothing for a text without a token to predict."""
    run, prefix = folder.config, list(folder.text_prefix)
    encodings = control_tokens.encode(folder.processor, texts)
    length = run.batch.length
    stride = min(length, run.task.stride or max(1, length // 2))
    windows = [
        window
        for index, encoding in enumerate(encodings)
        for window in sliding_windows(index, [*prefix, *encoding.ids], len(prefix), length, stride)
    ]
    logprobs, counts = np.zeros(len(texts)), np.zeros(len(texts), int)
    with log.progress(f"scoring {len(texts)} texts", len(windows)) as advance:
        size = max(1, min(batch, len(windows)))
        sizes = [(len(window.tokens), window.scored) for window in windows]
        for rows, count in length_sorted_batches(sizes, size):
            chosen = [windows[row] for row in rows]
            row_logprobs = np.asarray(checked(_logprobs, params, run.model, make_batch(chosen, length)))
            for window, logprob in zip(chosen[:count], row_logprobs, strict=False):
                logprobs[window.text] += logprob
                counts[window.text] += window.scored
            advance(count)
    for text, logprob, count in zip(texts, logprobs.tolist(), counts.tolist(), strict=True):
        yield _prediction(text, logprob, count)


def sliding_windows(text: int, tokens: Sequence[int], prefix: int, length: int, stride: int) -> Iterator[Window]:
    """The windows of a text, each of at most `length` + 1 tokens; every token behind the first `prefix`, and behind the
    first of all, is scored once. Windows after the first begin `stride` tokens later than the one before.
    """
    done = max(prefix, 1)
    start = 0
    while done < len(tokens):
        end = min(start + length + 1, len(tokens))
        yield Window(text, tokens[start:end], end - done)
        done, start = end, start + stride


@partial(jax.jit, static_argnums=1)
def _logprobs(params, model: tfm.Config, batch):
    return score(params, model, batch)["logprob"]


def _prediction(text: str, logprob: float, tokens: int) -> Prediction:
    """Metrics of a text: its log-probability over its count of tokens."""
    if not tokens:
        return Prediction("", {"text": text, "tokens": 0, "perplexity": None, "bits_per_byte": None})
    perplexity = scores.perplexity(-logprob / tokens)
    bits = -logprob / math.log(2) / len(text.encode("utf-8", "surrogatepass"))
    row = {"text": text, "tokens": tokens, "perplexity": perplexity, "bits_per_byte": bits}
    return Prediction(f"{perplexity:.4f}\t{bits:.4f}", row)


def attended(options: PredictOptions, folder: Folder) -> AttendedRow:
    """The text behind what stands before every document."""
    (encoding,) = control_tokens.encode(folder.processor, [options.text])
    return unmarked([*folder.text_prefix, *encoding.ids])


PREDICTOR = Predictor(("field",), inputs, predict, attended)
