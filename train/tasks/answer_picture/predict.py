"""Answers to questions about pictures, as train.predict says them."""

from collections.abc import Iterator, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import tfm
from train import UserError
from train.data.tokens import in_memory
from train.images.predicted import NamedPicture, named_pictures, prepared_batches
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.predict import PredictOptions
from train.tasks.captions.rows import TextFrame
from train.tasks.classification import prediction
from train.tasks.record import Folder, Prediction, Predictor

# Pictures, and the question about all of them.
Asked = tuple[Sequence[NamedPicture], str]


def inputs(options: PredictOptions, folder: Folder) -> Asked:
    """The pictures of --file, and --question. Raises UserError where one is missing."""
    if not options.question.strip():
        raise UserError("--question= must ask something about the pictures, such as --question='what colour is it ?'")
    return named_pictures(options), options.question


def predict(params: tfm.Classifier, folder: Folder, asked: Asked, log: Log, batch: int) -> Iterator[Prediction]:
    """The answer for each picture, and its probability. Raises UserError for a picture that is broken, and for a
    question that is too long."""
    pictures, question = asked
    run, processor, names = folder.config, folder.processor, folder.facts["classes"]
    frame, texts = TextFrame.of(processor.tokenizer), in_memory(processor.tokenizer, [question])
    if (size := int(frame.sizes(texts.lengths)[0])) > run.batch.length:
        raise UserError(f"--question has {size} tokens, and the model reads {run.batch.length}; shorten it")
    text = frame.fill(texts, np.zeros(1, int), run.batch.length)
    for rows, pixels in prepared_batches(pictures, processor.images, batch, log, "answering"):
        fields = {name: np.repeat(value, len(pixels), 0) for name, value in text.items()}
        logits = checked(_logits, params, run.model, *fields.values(), processor.images.normalize(pixels))
        for row, row_logits in zip(rows, np.asarray(logits), strict=False):
            guess, name = prediction("single", names, row_logits), str(pictures[row].image)
            facts = {"file": name, "answer": guess.label, "probabilities": guess.probabilities}
            yield Prediction(f"{name}\t{guess.label}\t{guess.probability}", facts)


@partial(jax.jit, static_argnums=1)
def _logits(params: tfm.Classifier, model: tfm.Config, tokens: Array, valid: Array, pixels: Array) -> Array:
    seen = jnp.ones((len(pixels), model.input.suffix), bool)
    valid = jnp.concatenate([valid > 0, seen], axis=1)
    return tfm.classify(params, model, tfm.PicturedTokens(tokens, pixels), valid)


PREDICTOR = Predictor(("question",), inputs, predict)
