"""Restored pictures, as train.predict makes them."""

from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image

from tfm.catalogue.models.pixel_outputs import PixelModel
from train import UserError
from train.data.batching import row_batches
from train.images import damage, sources
from train.images.decoding import BrokenImageError, decode_alpha
from train.images.predicted import NamedPicture, named_pictures
from train.images.processor import ImageProcessor
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.predict import PredictOptions
from train.tasks.record import Folder, Prediction, Predictor
from train.tasks.restore.loss import pictures
from train.tasks.restore.options import Restoration
from train.tasks.restore.rows import Damaged, as_read


def inputs(options: PredictOptions, folder: Folder) -> list[NamedPicture]:
    """The pictures that the file, or the quoted glob, names, and where results go. Raises UserError where there are
    none, and without --pictures."""
    if not options.pictures and not options.text:
        raise UserError("--pictures=FOLDER must name the folder for the restored pictures")
    return named_pictures(options)


def predict(
    params: PixelModel, folder: Folder, named: Sequence[NamedPicture], log: Log, batch: int
) -> Iterator[Prediction]:
    """A restored picture for each, of the size that the model makes. Raises UserError for a picture that is broken, and
    for one without holes where these are filled."""
    run, processor = folder.config, folder.processor
    with log.progress("restoring", len(named)) as advance:
        for rows, count in row_batches(range(len(named)), batch):
            lost = [_lost(named[row].image, run.task, processor) for row in rows]
            fields = {
                "pixels": np.stack([as_read(picture, processor) for picture in lost]),
                "starts": np.stack([picture.start for picture in lost]).astype(np.float32) / 255,
                "holes": np.stack([picture.holes for picture in lost]).astype(np.float32),
            }
            restored = np.asarray(checked(pictures, params, run.model, fields))
            for row, pixels in zip(rows[:count], restored, strict=False):
                image, to = named[row]
                Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(to)
                yield Prediction(f"{image}\t{to}", {"file": str(image), "picture": to})
            advance(count)


def _lost(picture: sources.PictureFile, task: Restoration, processor: ImageProcessor) -> Damaged:
    """A picture as it is: small, grey, or with holes where it is transparent."""
    pixels = processor.prepare(sources.opened(picture, processor.channels))
    height, width, _ = pixels.shape
    if task.kind == "holes":
        holes = _holes(picture, processor)
        if not holes.any() or holes.all():
            share = "no pixel" if not holes.any() else "every pixel"
            raise UserError(f"{picture} has {share} that is transparent; make transparent what is to be filled")
        return Damaged(pixels, holes)
    seen = damage.grey(pixels) if task.kind == "colour" else pixels
    return Damaged(seen, np.ones((height * task.factor, width * task.factor), bool))


def _holes(picture: sources.PictureFile, processor: ImageProcessor) -> np.ndarray:
    """Where a picture is transparent, bool [h,w]."""
    try:
        alpha = decode_alpha(picture.path)
    except BrokenImageError as error:
        raise UserError(f"{picture} {error}; leave it out of --file") from error
    return processor.prepare(alpha)[:, :, 0] < 128


PREDICTOR = Predictor(("pictures",), inputs, predict)
