"""Rows of pictures of which something is lost."""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from train.images import damage
from train.images.processor import ImageProcessor
from train.images.rows import ImageRows
from train.tasks.record import Facts
from train.tasks.restore.options import Restoration


class Damaged(NamedTuple):
    """A picture of which something is lost: what the model reads, uint8 [h,w,C], and whether each pixel of the result
    is asked for, bool [H,W]."""

    seen: np.ndarray
    holes: np.ndarray

    @property
    def start(self) -> np.ndarray:
        """The answer that needs no model, uint8 [H,W,C]; where pixels are not asked for, they are right."""
        return damage.trivial(self.seen, self.holes)


def damaged(pixels: np.ndarray, task: Restoration, patch: int, rng: np.random.Generator) -> Damaged:
    """A picture uint8 [H,W,C] without what the task asks for; `patch` is the side of a patch of the model."""
    height, width, _ = pixels.shape
    everywhere = np.ones((height, width), bool)
    if task.kind == "upscale":
        return Damaged(damage.resized(pixels, height // task.scale, width // task.scale), everywhere)
    if task.kind == "colour":
        return Damaged(damage.grey(pixels), everywhere)
    if task.shape == "rectangle":
        return Damaged(pixels, damage.rectangle(height, width, task.share, rng))
    return Damaged(pixels, damage.squares(height, width, task.share, patch, rng))


def as_read(row: Damaged, processor: ImageProcessor) -> np.ndarray:
    """What the model reads, float32 [h,w,C]; a hole has the mean of the model's data."""
    pixels = processor.normalize(row.seen)
    return pixels if row.holes.all() else np.where(row.holes[:, :, None], 0, pixels).astype(np.float32)


def result_processor(processor: ImageProcessor, factor: int) -> ImageProcessor:
    """The processor of the results: larger by a factor, values from 0 to 1."""
    height, width = processor.shape
    plain = dataclasses.replace(processor, mean=(0.0,) * processor.channels, std=(1.0,) * processor.channels)
    return plain if factor == 1 else plain.of_shape(height * factor, width * factor)


class DamagedRows:
    """The pictures of `ImageRows`, in the size of the results, of which something is lost at random."""

    buckets, padding, batches_ahead, independent_rows = None, 0.0, 2, True

    def __init__(self, images: ImageRows, processor: ImageProcessor, task: Restoration, patch: int):
        self.images, self.processor, self.task, self.patch = images, processor, task, patch
        self.tokens = images.tokens

    def __len__(self):
        return len(self.images)

    def overview(self, facts: Facts) -> dict[str, str]:
        """Lines of the start-up table; `facts` are those of run.json about the data."""
        train, valid = (facts[name] // self.images.length for name in ("train_tokens", "eval_tokens"))
        (height, width), (rows, columns) = self.processor.shape, self.images.processor.shape
        channels = self.processor.channels
        return {
            "data": f"{facts['source']}, hash {facts['hash']}",
            "pictures": f"{train:,} to train on, {valid:,} to validate on",
            "pixels": f"{height} x {width} x {channels}, {self.images.length} tokens to the model",
            "result": f"{rows} x {columns} x {channels}, {self.task.kind}",
        }

    def example_ids(self) -> Iterator[np.ndarray]:
        """No picture has tokens of a vocabulary."""
        return iter(())

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.restore.task`; empty rows count for nothing."""
        seeds = rng.integers(1 << 62, size=len(rows))
        is_row, withheld = rows >= 0, self.images.withheld[rows]
        targets = self.images.read(rows, seeds)
        fields = {
            "pixels": self.processor.empty(len(rows)),
            "starts": np.zeros_like(targets),
            "targets": targets,
            "holes": np.zeros(targets.shape[:3], np.float32),
        }
        for place in np.flatnonzero(is_row):
            pixels = np.rint(targets[place] * 255).astype(np.uint8)
            row = damaged(pixels, self.task, self.patch, np.random.default_rng([seeds[place], 1]))
            fields["pixels"][place] = as_read(row, self.processor)
            fields["starts"][place] = row.start.astype(np.float32) / 255
            fields["holes"][place] = row.holes
        counts = (is_row & ~withheld).astype(np.float32)
        return fields | {
            "weights": fields["holes"] * counts[:, None, None],
            "withheld": (is_row & withheld).astype(np.float32),
        }
