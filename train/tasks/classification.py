"""What classifiers share: losses of classes, what the outputs for a text say, and how their tokenizer marks texts."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from tfm.ops import split
from train.data import packing


def read(
    params: Any, model: tfm.Config, batch: Mapping[str, Array], key: Array | None = None
) -> tuple[Array, Array | None]:
    """Tokens of a batch of texts (`train.data.text_rows`) -> the states that the head of a classifier or tagger reads
    [B,T,D], and the key of the head; a key turns dropout on."""
    encoder_key, head_key = split(key, 2)
    segments, types = batch["segments"], used_types(model, batch.get("types"))
    positions = batch["positions"] if model.reads_packed else None
    mask = packing.row_mask(model, segments)
    hidden = tfm.features(params.encoder, params.mix, model, batch["tokens"], mask, types, encoder_key, positions)
    return hidden, head_key


def texts_of(batch: Mapping[str, Array], single: int = 1) -> Array:
    """A batch of examples of `single` texts each -> bool [B,n,T]: the tokens of each text of a row."""
    segments = batch["segments"]
    return tfm.segment_tokens(segments, len(batch["rows"]) * single // len(segments))


def class_losses(logits: Array, batch: Mapping[str, Array], present: Array | None = None) -> Array:
    """logits [B,C] and the fields `labels`, `smoothing` and `focal` of a batch -> float32 losses [B], in nats.

    labels int [B] are classes, float [B,C] ones and zeros; of the latter, the loss is the mean over the classes.
    smoothing [B] is the probability that is divided among the classes (Szegedy et al. 2016, section 7), or among those
    `present` [B,C]. focal [B] is the exponent of 1 - p of the right class, a factor of the loss (Lin et al. 2017,
    eq. 4). Evaluation has neither.
    """
    labels, smoothing = batch["labels"], batch.get("smoothing")
    if labels.ndim == 2:
        return _decision_losses(logits, labels, smoothing, batch.get("focal")).mean(-1)
    losses = tfm.cross_entropy(logits, labels)
    right_logprobs = -losses
    if smoothing is not None:
        logprobs = jax.nn.log_softmax(logits, axis=-1)
        present = jnp.ones(logits.shape, bool) if present is None else present
        mean = jnp.where(present, logprobs, 0).sum(-1) / jnp.maximum(present.astype(jnp.float32).sum(-1), 1)
        losses = (1 - smoothing) * losses - smoothing * mean
    return losses if "focal" not in batch else losses * _focus(right_logprobs, batch["focal"])


def _decision_losses(logits: Array, labels: Array, smoothing: Array | None, focal: Array | None) -> Array:
    """Losses [B,C] of independent decisions; smoothing is divided among yes and no."""
    logprobs = -jnp.logaddexp(0, jnp.where(labels > 0, -logits, logits))
    targets = labels if smoothing is None else labels * (1 - smoothing[:, None]) + smoothing[:, None] / 2
    losses = jnp.logaddexp(0, logits) - targets * logits
    return losses if focal is None else losses * _focus(logprobs, focal[:, None])


def _focus(logprobs: Array, exponent: Array) -> Array:
    """(1 - p)^exponent; p of 1 has a gradient too."""
    return jnp.maximum(-jnp.expm1(logprobs), 1e-7) ** exponent


def used_types(model: tfm.Config, types: Array | None) -> Array | None:
    """The token types [B,T], or None for a model that has no two types (RoBERTa)."""
    return types if model.sizes.get("Y", 0) > 1 else None


def counted(outcomes: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Logits and labels of the rows with a weight."""
    counts = outcomes["weights"] > 0
    return outcomes["scores"][counts], outcomes["labels"][counts]


def softmax(logits: np.ndarray) -> np.ndarray:
    """logits [...,C] -> probabilities, float64."""
    wide = logits.astype(np.float64)
    exponentials = np.exp(wide - wide.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


class Label(NamedTuple):
    """The predicted label (a class, classes joined by commas, or a value), its probability, those of all classes."""

    label: str
    probability: str
    probabilities: dict[str, float]


def prediction(kind: str, names: Sequence[str], logits: np.ndarray) -> Label:
    """logits [C] -> the most probable class, all classes more probable than not, or the value; float64."""
    wide = logits.astype(np.float64)
    if kind == "regression":
        return Label(f"{wide[0]:.4f}", "", {})
    if kind == "single":
        probabilities = softmax(wide)
        chosen = [int(probabilities.argmax())]
    else:
        probabilities = 1 / (1 + np.exp(-wide))
        chosen = np.flatnonzero(probabilities > 0.5).tolist()
    label = ",".join(names[c] for c in chosen)
    probability = ",".join(f"{probabilities[c]:.4f}" for c in chosen)
    return Label(label, probability, dict(zip(names, probabilities.tolist(), strict=True)))


def truth(names: Sequence[str], label: Any) -> str:
    """A label as `prediction` writes it."""
    if not names:
        return f"{label:.4f}"
    return ",".join(names[int(c)] for c in np.flatnonzero(label)) if label.ndim else names[label]
