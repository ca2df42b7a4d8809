"""Rows of pictures, with classes or pixel by pixel: decoded, augmented and normalized when a batch asks for them."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
from PIL import Image

from train import UserError
from train.data.labels import LossFields
from train.data.sources.files import Row
from train.images.augmentation import augmented, erased
from train.images.checking import THREADS
from train.images.decoding import BrokenImageError
from train.images.mixing import mixed
from train.images.palette import AnyProcessor
from train.settings.images import Augment

# Classes that the start-up table names.
NAMED = 12


class ImageRows:
    """Pictures and their classes int32 [N]; a picture is `length` tokens to the model.

    They all count the same in the loss, and are not changed; `train_with` says otherwise for training.
    """

    buckets, padding, batches_ahead = None, 0.0, 2

    def __init__(self, rows: Sequence[Row], labels: np.ndarray, processor: AnyProcessor, length: int):
        self.pictures = [row["image"] for row in rows]
        self.digests = [row.get("digest", "") for row in rows]
        self.withheld = np.array([row.get("withheld", False) for row in rows], bool)
        self.labels, self.processor, self.length = labels, processor, length
        self.train_with(LossFields(), Augment())
        self.tokens = len(self.pictures) * length

    def __len__(self):
        return len(self.pictures)

    def overview(self, facts: Mapping[str, Any]) -> dict[str, str]:
        """Lines of the start-up table; `facts` are those of run.json about the data."""
        height, width = self.processor.shape
        frames = getattr(self.processor, "frames", None)
        is_long = len(facts["classes"]) > NAMED
        train, valid = (facts[name] // self.length for name in ("train_tokens", "eval_tokens"))
        return {
            "data": f"{facts['source']}, hash {facts['hash']}",
            "videos" if frames else "pictures": f"{train:,} to train on, {valid:,} to validate on",
            "pixels": f"{f'{frames} frames of ' if frames else ''}{height} x {width} x {self.processor.channels}, "
            f"{self.length} tokens to the model",
            "classes": f"{len(facts['classes']):,}: {', '.join(facts['classes'][:NAMED])}{', ...' * is_long}",
        }

    @property
    def images(self) -> "ImageRows":
        """The pictures of the rows."""
        return self

    def train_with(self, loss: LossFields, augment: Augment):
        """Sets how rows count in the loss and how they are changed. Rows that are mixed depend on their batch."""
        self.loss, self.augment, self.independent_rows = loss, augment, not augment.mixes

    def example_ids(self) -> Iterator[np.ndarray]:
        """No picture has tokens of a vocabulary."""
        return iter(())

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.image.task`; empty rows are grey."""
        is_row, labels = rows >= 0, self.labels[rows]
        pixels = self.read(rows, rng.integers(1 << 62, size=len(rows)))
        fields = {"labels": labels, **self.loss.fields(labels, is_row & ~self.withheld[rows])}
        fields["withheld"] = (is_row & self.withheld[rows]).astype(np.float32)
        if self.augment.mixes:
            pixels, partners, shares = mixed(pixels, is_row, self.augment, rng)
            fields |= {"partners": labels[partners], "shares": shares}
        return {self.processor.field: pixels, **fields}

    def read(self, rows: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Pictures as the model reads them, [B, ...], each changed by its seed; empty rows are grey."""
        pixels = self.processor.empty(len(rows))
        filled = np.flatnonzero(rows >= 0)
        for place, picture in zip(filled, self._pool.map(self._pixels, rows[filled], seeds[filled]), strict=True):
            pixels[place] = picture
        return pixels

    def pixels(self, rows: np.ndarray) -> np.ndarray:
        """Pictures as they are shown, uint8 [B,H,W,C]."""
        return np.stack([self.processor.prepare(self._open(row)) for row in rows])

    def is_broken(self, row: int) -> bool:
        """Whether the picture of a row cannot be decoded, or has one colour."""
        try:
            pixels = self.processor.prepare(self.pictures[row].open(self.processor.channels))
        except BrokenImageError:
            return True
        return bool((pixels == pixels[:1, :1]).all())

    @cached_property
    def groups(self) -> np.ndarray:
        """A number for every row, int [N]: rows of equal pictures have equal ones."""
        return np.unique(self.digests, return_inverse=True)[1]

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        """The threads that decode; Pillow and numpy let them work at the same time."""
        return ThreadPoolExecutor(THREADS, "decode")

    def _pixels(self, row: int, seed: int) -> np.ndarray:
        """The picture of a row as the model reads it: float32 [H,W,C], or int32 [T] of a palette."""
        image, augment = self._open(row), self.augment
        if not (augment.changes or augment.erase):
            return self.processor.normalize(self.processor.prepare(image))
        rng = np.random.default_rng(seed)
        pixels = self.processor.normalize(augmented(image, self.processor, augment, rng))
        return erased(pixels, augment.erase, rng) if augment.erase else pixels

    def _open(self, row: int) -> Image.Image:
        picture = self.pictures[row]
        try:
            return picture.open(self.processor.channels)
        except BrokenImageError as error:
            raise UserError(f"{picture} {error}; it was whole when the run began: restore it") from error
