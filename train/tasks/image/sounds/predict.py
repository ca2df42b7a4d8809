"""Classes of sounds, as train.predict says them."""

from collections.abc import Iterator, Sequence
from functools import partial

import jax
import numpy as np
from jax import Array

import tfm
from train.data.batching import row_batches
from train.screens.console import Log
from train.screens.finite import checked
from train.sounds.predicted import named_sounds, read_sounds
from train.tasks.classification import prediction
from train.tasks.record import Folder, Prediction, Predictor


def predict(params: tfm.Classifier, folder: Folder, names: Sequence[str], log: Log, batch: int) -> Iterator[Prediction]:
    """The class of each sound, and its probability."""
    run, classes = folder.config, folder.facts["classes"]
    sounds = read_sounds(names, folder.processor, run.data, log)
    with log.progress("classifying", len(sounds)) as advance:
        for rows, count in row_batches(range(len(sounds)), batch):
            fields = sounds.batch(np.asarray(rows))
            logits = np.asarray(checked(_logits, params, run.model, fields["frames"], fields["lengths"]))
            for row, row_logits in zip(rows[:count], logits, strict=False):
                guess = prediction("single", classes, row_logits)
                facts = {"file": sounds.names[row], "label": guess.label, "probabilities": guess.probabilities}
                yield Prediction(f"{sounds.names[row]}\t{guess.label}\t{guess.probability}", facts)
            advance(count)


@partial(jax.jit, static_argnums=1)
def _logits(params: tfm.Classifier, model: tfm.Config, frames: Array, lengths: Array) -> Array:
    return tfm.classify(params, model, tfm.PaddedFrames(frames, lengths), tfm.valid_frames(model, lengths))


PREDICTOR = Predictor((), lambda options, folder: named_sounds(options), predict)
