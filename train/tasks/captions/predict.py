"""Pictures and texts as vectors of one space, and the classes of pictures by the texts of their labels (Radford et al.
2021, section 3.1)."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import tfm
from train import UserError
from train.data.batching import row_batches
from train.data.sources import files
from train.data.tokens import in_memory
from train.images import sources
from train.images.model_processor import check_processor
from train.screens.finite import checked
from train.settings.predict import PredictOptions
from train.tasks.captions.rows import TextFrame, until_end
from train.tasks.classification import prediction
from train.tasks.record import Folder, Prediction, Predictor
from train.text import control_tokens


class Question(NamedTuple):
    """Pictures, the labels to choose from, and texts with {} in the place of a label."""

    pictures: list[sources.PictureFile]
    labels: list[str]
    templates: list[str]


def inputs(options: PredictOptions, folder: Folder) -> Question:
    """What --file, --labels and --template ask. Raises UserError for bad ones."""
    if options.text:
        raise UserError(f"--text={options.text} is for models of texts; name pictures with --file='FOLDER/*.jpg'")
    labels = _entries(options.labels, ",")
    if len(labels) < 2:
        raise UserError(f"--labels={options.labels} must name two labels or more, with commas between or in a file")
    twice = next((label for place, label in enumerate(labels) if label in labels[:place]), None)
    if twice is not None:
        raise UserError(f"--labels names {twice!r} twice; leave one of them out")
    templates = _entries(options.template, "|") or ["{}"]
    bad = next((template for template in templates if "{}" not in template), None)
    if bad is not None:
        raise UserError(f"--template={bad} has no {{}}, the place of the label; say --template='a photo of {{}}'")
    return Question(sources.named_pictures(options.file), labels, templates)


def _entries(value: str, separator: str) -> list[str]:
    """The entries of a flag, or the lines of the file that it names; blank ones are left out."""
    is_file = value.endswith(".txt") and Path(value).is_file()
    entries = files.read_lines(Path(value)) if is_file else value.split(separator)
    return [entry.strip() for entry in entries if entry.strip()]


def predict(params: Any, folder: Any, asked: Question, log: Any, batch: int) -> Iterator[Prediction]:
    """The label of each picture whose vector is nearest, and its probability.

    A softmax over the labels, or with `images.loss=sigmoid` a decision for each.
    """
    classes = label_vectors(params, folder, asked, log, batch)
    scale = np.exp(np.asarray(params.log_scale, np.float32))
    bias = 0.0 if params.bias is None else np.asarray(params.bias, np.float32)
    with log.progress("classifying", len(asked.pictures)) as advance:
        for rows, count in row_batches(range(len(asked.pictures)), batch):
            pictures = [asked.pictures[row] for row in rows]
            vectors = _image_vectors(params, folder, pictures)[:count]
            for picture, logits in zip(pictures, vectors @ classes.T * scale + bias, strict=False):
                guess = prediction("single", asked.labels, logits)
                probabilities, probability = guess.probabilities, guess.probability
                if params.bias is not None:
                    values = 1 / (1 + np.exp(-logits.astype(np.float64)))
                    probabilities = dict(zip(asked.labels, values.tolist(), strict=True))
                    probability = f"{values.max():.4f}"
                facts = {"file": str(picture), "label": guess.label, "probabilities": probabilities}
                yield Prediction(f"{picture}\t{guess.label}\t{probability}", facts)
            advance(count)


def label_vectors(params: Any, folder: Any, asked: Question, log: Any, batch: int) -> np.ndarray:
    """Vectors of the labels, float32 [C,D] of length 1: the mean of those of all templates."""
    texts = [template.replace("{}", label) for label in asked.labels for template in asked.templates]
    vectors = encode_items(params, folder, texts, log, batch)
    means = vectors.reshape(len(asked.labels), len(asked.templates), -1).mean(1)
    return means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)


def encode_items(params: Any, folder: Any, items: Sequence[Any], log: Any, batch: int = 64) -> np.ndarray:
    """Vectors of texts (str) and of pictures, float32 [N,D] of length 1, in one space.

    Raises UserError for a picture that is broken. The end of a text that is longer than `batch.length` is cut off.
    """
    is_text = np.array([isinstance(item, str) for item in items], bool)
    texts, pictures = np.flatnonzero(is_text), np.flatnonzero(~is_text)
    fields = _text_fields(folder, [items[place] for place in texts.tolist()], log)

    def encode_texts(rows: np.ndarray) -> np.ndarray:
        tokens, valid = (fields[name][rows] for name in ("tokens", "valid"))
        return np.asarray(checked(_encode_texts, params, folder.config.model, tokens, valid > 0))

    def encode_pictures(rows: np.ndarray) -> np.ndarray:
        return _image_vectors(params, folder, [items[place] for place in pictures[rows].tolist()])

    vectors: dict[int, np.ndarray] = {}
    with log.progress(f"encoding {len(items):,} texts and pictures", len(items)) as advance:
        for places, encode in ((texts, encode_texts), (pictures, encode_pictures)):
            for rows, count in row_batches(range(len(places)), batch):
                vectors |= dict(zip(places[rows[:count]].tolist(), encode(rows), strict=False))
                advance(count)
    return np.stack([vectors[place] for place in range(len(items))])


def _text_fields(folder: Any, texts: Sequence[str], log: Any) -> dict[str, np.ndarray]:
    """`tokens` and `valid`, int32 [N,T]."""
    tokenizer, length = folder.processor.tokenizer, folder.config.batch.length
    if said := control_tokens.report(tokenizer, texts, "texts"):
        log.info(said)
    tokens = until_end(in_memory(tokenizer, texts), tokenizer, folder.config.model)
    frame = TextFrame.of(tokenizer)
    longer = int((frame.sizes(tokens.lengths) > length).sum())
    if longer:
        log.info(f"{longer:,} of {len(texts):,} texts are longer than {length} tokens and lose their end")
    return frame.fill(tokens, np.arange(len(texts)), length)


def _image_vectors(params: Any, folder: Any, pictures: Sequence[Any]) -> np.ndarray:
    """Vectors of pictures, float32 [B,D]."""
    processor = folder.processor.images
    check_processor(processor, folder.config.model.in_images())
    pixels = np.stack([processor.prepare(sources.opened(picture, processor.channels)) for picture in pictures])
    return np.asarray(checked(_encode_images, params, folder.config.model, processor.normalize(pixels)))


@partial(jax.jit, static_argnums=1)
def _encode_texts(params, model: tfm.Config, tokens, valid):
    return tfm.text_vectors(params, model, tokens, valid)


@partial(jax.jit, static_argnums=1)
def _encode_images(params, model: tfm.Config, pixels):
    return tfm.image_vectors(params, model, pixels)


PREDICTOR = Predictor(("labels", "template"), inputs, predict)
