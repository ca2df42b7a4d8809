"""Classes of sounds, as train.predict says them."""

import glob
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import jax
import numpy as np
from jax import Array

import tfm
from train import UserError
from train.data.batching import row_batches
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.predict import PredictOptions
from train.sounds import files, sources
from train.sounds.rows import Sounds
from train.tasks.classification import prediction
from train.tasks.record import Folder, Prediction, Predictor


def inputs(options: PredictOptions, folder: Folder) -> list[str]:
    """The sounds that the file, the folder or the quoted glob names. Raises UserError where there are none."""
    if options.text:
        raise UserError(f"--text={options.text} is for models of texts; name sounds with --file='FOLDER/*.wav'")
    paths = [Path(name) for name in sorted(glob.glob(options.file, recursive=True))]
    inner = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    sounds = [str(path) for path in inner if path.suffix.lower() in files.ENDINGS]
    if not sounds:
        raise UserError(
            f"no sound ({', '.join(files.ENDINGS)}) matches {options.file!r}; give the path of one, or a quoted glob "
            "such as '*.wav'"
        )
    return sounds


def sounds_of(folder: Folder, names: Sequence[str], processor, log: Log) -> Sounds:
    """The sounds of these names. Raises UserError for one that cannot be read."""
    rows = sources.readable([{"sound": name, "label": ""} for name in names], processor, folder.config.data, log)
    return Sounds(rows, processor, 0)


def predict(params: tfm.Classifier, folder: Folder, names: Sequence[str], log: Log, batch: int) -> Iterator[Prediction]:
    """The class of each sound, and its probability."""
    sounds, classes = sounds_of(folder, names, folder.processor, log), folder.facts["classes"]
    with log.progress("classifying", len(sounds)) as advance:
        for rows, count in row_batches(range(len(sounds)), batch):
            fields = sounds.batch(np.asarray(rows))
            logits = np.asarray(checked(_logits, params, folder.config.model, fields["frames"], fields["lengths"]))
            for row, row_logits in zip(rows[:count], logits, strict=False):
                guess = prediction("single", classes, row_logits)
                facts = {"file": sounds.names[row], "label": guess.label, "probabilities": guess.probabilities}
                yield Prediction(f"{sounds.names[row]}\t{guess.label}\t{guess.probability}", facts)
            advance(count)


@partial(jax.jit, static_argnums=1)
def _logits(params: tfm.Classifier, model: tfm.Config, frames: Array, lengths: Array) -> Array:
    return tfm.classify(params, model, tfm.PaddedFrames(frames, lengths), tfm.valid_frames(model, lengths))


PREDICTOR = Predictor((), inputs, predict)
