"""Rows of pictures and their masks."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image

from train import UserError
from train.images.augmentation import augmented
from train.images.decoding import BrokenImageError
from train.images.masks import PictureMask
from train.images.processor import ImageProcessor
from train.images.rows import ImageRows
from train.settings.images import Augment
from train.tasks.record import Facts
from train.tasks.segment.options import PixelClasses


class MaskRows:
    """The pictures of `ImageRows`, each with a mask, which is cropped and mirrored as its picture is.

    options: they say which values of masks are classes
    """

    buckets, padding, batches_ahead, independent_rows = None, 0.0, 2, True

    def __init__(
        self, images: ImageRows, masks: Sequence[PictureMask], processor: ImageProcessor, options: PixelClasses
    ):
        self.images, self.masks, self.options = images, masks, options
        self.processor = dataclasses.replace(processor, mean=(0.5,), std=(0.5,), resample="nearest")
        self.tokens = images.tokens

    def __len__(self):
        return len(self.images)

    def overview(self, facts: Facts) -> dict[str, str]:
        """Lines of the start-up table; `facts` are those of run.json about the data."""
        return self.images.overview(facts)

    def example_ids(self) -> Iterator[np.ndarray]:
        """No picture has tokens of a vocabulary."""
        return iter(())

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.segment.task`; empty rows count for nothing."""
        seeds = rng.integers(1 << 62, size=len(rows))
        is_row, withheld = rows >= 0, self.images.withheld[rows]
        values = np.zeros((len(rows), *self.processor.shape), np.uint8)
        for place in np.flatnonzero(is_row):
            values[place] = self.mask(rows[place], seeds[place])
        counted = is_class(values, self.options) & is_row[:, None, None]
        counts, is_withheld = counted.astype(np.float32), withheld[:, None, None]
        return {
            self.images.processor.field: self.images.read(rows, seeds),
            "labels": np.where(counted, values, 0).astype(np.int32),
            "weights": counts * ~is_withheld,
            "withheld": counts * is_withheld,
        }

    def mask(self, row: int, seed: int | None = None) -> np.ndarray:
        """The classes in the mask of a row, uint8 [H,W]; those of a picture that the seed changes."""
        image, augment = self._open(row), self.images.augment
        if seed is None or not augment.changes:
            return reduced(self.processor.prepare(image)[:, :, 0], self.options)
        geometry = Augment(flip=augment.flip, crop=augment.crop)  # the first random numbers of a picture
        values = augmented(image, self.processor, geometry, np.random.default_rng(seed))[:, :, 0]
        return reduced(values, self.options)

    def _open(self, row: int) -> Image.Image:
        try:
            return self.masks[row].open()
        except BrokenImageError as error:
            raise UserError(f"{self.masks[row]} {error}; it was whole when the run began: restore it") from error


def reduced(values: np.ndarray, options: PixelClasses) -> np.ndarray:
    """Values of masks, uint8 -> classes, uint8: values less 1, and 255 for none, where `reduce_labels` says so."""
    return np.where((values == 0) | (values == 255), 255, values - 1) if options.reduce_labels else values


def is_class(classes: np.ndarray, options: PixelClasses) -> np.ndarray:
    """bool: where `reduced` values are those of a class."""
    return (classes != options.ignore) & ~(options.reduce_labels & (classes == 255))
