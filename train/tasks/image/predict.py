"""Classes of pictures, as train.predict says them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tfm
from train import UserError
from train.data.batching import row_batches
from train.images import sources, videos
from train.images.model_processor import check_processor
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.images import video_frames
from train.settings.predict import PredictOptions
from train.tasks.classification import prediction
from train.tasks.image import attention
from train.tasks.record import Folder, Prediction, Predictor


def inputs(options: PredictOptions, folder: Folder) -> list[dict[str, Any]]:
    """The pictures that the file, or the quoted glob, names. Raises UserError where there are none."""
    if options.text:
        raise UserError(f"--text={options.text} is for models of texts; name pictures with --file='FOLDER/*.jpg'")
    if options.attention and not Path(options.attention).absolute().parent.is_dir():
        raise UserError(f"--attention={options.attention} cannot be made; name a folder in one that is there")
    if options.attention and folder.config.model.input.axes is None:
        raise UserError(f"--attention={options.attention} is for models of patches; leave it out")
    frames = video_frames(folder.config.model.input)
    named = videos.named_videos(options.file, frames) if frames else sources.named_pictures(options.file)
    return [{"file": str(picture), "image": picture, "attention": options.attention} for picture in named]


def predict(
    params, folder: Folder, pictures: Sequence[Mapping[str, Any]], log: Log, batch: int
) -> Iterator[Prediction]:
    """The class of each picture, and its probability. Raises UserError for one that is broken, and for a model without
    a head of classes, or without the weights that --attention asks for."""
    if not isinstance(params, tfm.Classifier) or params.output is None:
        raise UserError(
            f"--run={folder.path} holds a model without a head of classes; fine-tune it first with --task=image --init"
        )
    run, processor, classes = folder.config, folder.processor, folder.facts["classes"]
    if pictures and (to := pictures[0]["attention"]) and not attention.has_weights(params, run.model):
        reason = (
            "its stages have several grids" if run.model.stages else f"--model.mixer={run.model.mixer.name} has none"
        )
        raise UserError(
            f"--attention={to} draws the weights of attention between all patches, and of {folder.path} there are "
            f"none: {reason}; leave it out"
        )
    check_processor(processor, run.model)
    with log.progress("classifying", len(pictures)) as advance:
        for rows, count in row_batches(range(len(pictures)), batch):
            pixels = np.stack(
                [processor.prepare(sources.opened(pictures[row]["image"], processor.channels)) for row in rows]
            )
            logits = np.asarray(checked(_logits, params, run.model, processor.normalize(pixels)))
            for row, row_logits in zip(rows[:count], logits, strict=False):
                guess = prediction("single", classes, row_logits)
                name = pictures[row]["file"]
                facts = {"file": name, "label": guess.label, "probabilities": guess.probabilities}
                yield Prediction(f"{name}\t{guess.label}\t{guess.probability}", facts)
            if to := pictures[rows[0]]["attention"]:
                attention.draw(params, run.model, processor, pixels[:count], Path(to), first=int(rows[0]) + 1)
            advance(count)


@partial(jax.jit, static_argnums=1)
def _logits(params, model: tfm.Config, pixels):
    return tfm.classify(params, model, pixels)


PREDICTOR = Predictor(("attention",), inputs, predict)
