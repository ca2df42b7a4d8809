"""Masks of pictures, as train.predict makes them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from tfm.catalogue.models.pixel_outputs import PixelModel
from train.images import sheets, sources
from train.images.predicted import NamedPicture, named_pictures, prepared_batches
from train.screens.console import Log
from train.screens.finite import checked
from train.settings.predict import PredictOptions
from train.tasks.record import Folder, Prediction, Predictor
from train.tasks.segment.loss import guesses


def inputs(options: PredictOptions, folder: Folder) -> list[NamedPicture]:
    """The pictures that the file, or the quoted glob, names, and where their masks go. Raises UserError where there are
    none, and for masks of one name."""
    return named_pictures(options)


def predict(
    params: PixelModel, folder: Folder, pictures: Sequence[NamedPicture], log: Log, batch: int
) -> Iterator[Prediction]:
    """The share of the pixels of each picture that every class has. With --pictures also a mask, of the size of the
    picture where it is not cropped. Raises UserError for a picture that is broken."""
    run, processor, classes = folder.config, folder.processor, folder.facts["classes"]
    for rows, pixels in prepared_batches(pictures, processor, batch, log, "labelling pixels"):
        masks = np.asarray(checked(guesses, params, run.model, len(classes), processor.normalize(pixels)))
        for row, mask in zip(rows, masks, strict=False):
            counts = np.bincount(mask.ravel(), minlength=len(classes))
            shares = {name: float(count / mask.size) for name, count in zip(classes, counts, strict=True)}
            picture, to = pictures[row]
            if to:
                _save(mask, picture, Path(to), is_full=processor.crop is None)
            name = str(picture)
            largest = sorted((name for name in shares if shares[name]), key=lambda name: -shares[name])
            line = "\t".join([name, *(f"{kind} {shares[kind]:.4f}" for kind in largest)])
            yield Prediction(line, {"file": name, "shares": shares, **({"mask": to} if to else {})})


def _save(mask: np.ndarray, picture: sources.PictureFile, path: Path, is_full: bool):
    """Writes classes [H,W] as a PNG with a palette, which has the size of the picture if it is of all of it."""
    image = Image.fromarray(mask.astype(np.uint8))
    if is_full:
        image = image.resize(sources.opened(picture, 1).size, Image.Resampling.NEAREST)
    image.putpalette(sheets.palette().tobytes())
    image.save(path)


PREDICTOR = Predictor(("pictures",), inputs, predict)
