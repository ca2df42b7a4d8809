"""Objects of pictures, as train.predict says and draws them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import tfm
from train.images import sheets, sources
from train.images.model_processor import check_processor
from train.images.predicted import NamedPicture, named_pictures, prepared_batches
from train.metrics.boxes import corners
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.predict import PredictOptions
from train.tasks.detect.loss import answers
from train.tasks.record import Folder, Prediction, Predictor

# The least score of a box that is shown and drawn; files of train.evaluate have all.
SHOWN = 0.5


def inputs(options: PredictOptions, folder: Folder) -> list[NamedPicture]:
    """The pictures that the file, or the quoted glob, names, and where those with boxes go. Raises UserError where
    there are none, and for pictures of one name."""
    return named_pictures(options)


def predict(
    params: tfm.ObjectDetector, folder: Folder, pictures: Sequence[NamedPicture], log: Log, batch: int
) -> Iterator[Prediction]:
    """The objects of each picture whose score is at least one half, the most certain first: class, score and box, the
    least x and y, width and height in pixels of the picture. With --pictures also a picture with them drawn. Raises
    UserError for a picture that is broken."""
    run, processor, classes = folder.config, folder.processor, folder.facts["classes"]
    check_processor(processor, run.model)
    for rows, pixels in prepared_batches(pictures, processor, batch, log, "detecting objects"):
        outputs = checked(answers, params, run.model, processor.normalize(pixels))
        for row, *of_picture in zip(rows, *map(np.asarray, outputs), strict=False):
            picture, to = pictures[row]
            image = sources.opened(picture, processor.channels)
            objects = [
                {"class": classes[kind], "score": float(score), "box": in_pixels(box, *image.size)}
                for kind, score, box in _certain(*of_picture)
            ]
            if to:
                sheets.boxed(np.asarray(image), [_label(entry) for entry in objects], Path(to))
            name = str(picture)
            shown = (f"{o['class']} {o['score']:.2f} {' '.join(f'{side:.1f}' for side in o['box'])}" for o in objects)
            yield Prediction("\t".join([name, *shown]), {"file": name, "objects": objects})


def _certain(kinds: np.ndarray, scores: np.ndarray, boxes: np.ndarray) -> Iterator[tuple[int, float, np.ndarray]]:
    """Class, score and box of the queries whose score is at least SHOWN, the most certain first."""
    for query in np.argsort(-scores, kind="stable"):
        if scores[query] >= SHOWN:
            yield int(kinds[query]), float(scores[query]), boxes[query]


def in_pixels(box: np.ndarray, width: int, height: int) -> list[float]:
    """A box [4], the center's x and y, width and height in parts of a picture -> its least x and y, width and height in
    pixels, within the picture."""
    low, high = (corner.clip(0, 1) for corner in corners(box))
    return [float(side) for side in np.concatenate([low, high - low]) * [width, height, width, height]]


def _label(entry: dict) -> tuple[str, list[float]]:
    """What stands over a drawn box, and the box."""
    return f"{entry['class']} {entry['score']:.2f}", entry["box"]


PREDICTOR = Predictor(("pictures",), inputs, predict)
