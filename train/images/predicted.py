"""Pictures that train.predict makes of pictures."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from train import UserError
from train.data.batching import row_batches
from train.images import sources
from train.images.processor import ImageProcessor
from train.screens.console import Log
from train.settings.predict import PredictOptions


class NamedPicture(NamedTuple):
    """A picture, and the file for what is made of it; "": none is written."""

    image: sources.PictureFile
    to: str


def named_pictures(options: PredictOptions) -> list[NamedPicture]:
    """The pictures that the file, or the quoted glob, names, and files for what is made of each in the folder of
    --pictures, which is made. Raises UserError where there is no picture, and for two of one name."""
    if options.text:
        raise UserError(f"--text={options.text} is for models of texts; name pictures with --file='FOLDER/*.jpg'")
    pictures = sources.named_pictures(options.file)
    paths: dict[str, str] = {}
    if options.pictures:
        folder = Path(options.pictures)
        for picture in pictures:
            name = folder / f"{Path(picture.path).stem}.png"
            if (clash := paths.setdefault(str(name), picture.path)) != picture.path:
                raise UserError(f"{clash} and {picture.path} would both become {name}; give them different names")
            if name.exists() and name.samefile(picture.path):
                raise UserError(f"--pictures={folder} would replace {picture.path}; name another folder")
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise UserError(f"--pictures={folder} cannot be made; name a folder in one that is there") from error
    files = list(paths) or [""] * len(pictures)
    return [NamedPicture(picture, to) for picture, to in zip(pictures, files, strict=True)]


def prepared_batches(
    pictures: Sequence[NamedPicture], processor: ImageProcessor, batch: int, log: Log, title: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows of pictures, and pixels uint8 [batch,H,W,C] of them, as many as a batch has: the last is repeated.
    Raises UserError for a picture that is broken."""
    with log.progress(title, len(pictures)) as advance:
        for rows, count in row_batches(range(len(pictures)), batch):
            images = [sources.opened(pictures[row].image, processor.channels) for row in rows]
            yield np.asarray(rows)[:count], np.stack([processor.prepare(image) for image in images])
            advance(count)
