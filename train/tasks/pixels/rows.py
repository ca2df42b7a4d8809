"""Rows of pictures, pixel by pixel."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from train.images.palette import PaletteProcessor
from train.images.rows import ImageRows


class PixelRows:
    """The pictures of `ImageRows` as tokens of a palette: every pixel is predicted from those before it, row by row."""

    buckets, padding, batches_ahead, independent_rows = None, 0.0, 2, True

    def __init__(self, images: ImageRows, processor: PaletteProcessor):
        self.images, self.processor = images, processor
        self.tokens = images.tokens

    def __len__(self):
        return len(self.images)

    def overview(self, facts: Mapping[str, Any]) -> dict[str, str]:
        """Lines of the start-up table; `facts` are those of run.json about the data."""
        height, width = self.processor.shape
        train, valid = (facts[name] // self.images.length for name in ("train_tokens", "eval_tokens"))
        return {
            "data": f"{facts['source']}, hash {facts['hash']}",
            "pictures": f"{train:,} to train on, {valid:,} to validate on",
            "pixels": f"{height} x {width}, each one of {len(self.processor.clusters)} colours",
        }

    def example_ids(self) -> Iterator[np.ndarray]:
        """The tokens of every picture."""
        return map(self.picture, range(len(self)))

    def picture(self, row: int) -> np.ndarray:
        """The tokens of a picture, int32 [H*W]."""
        return self.processor.normalize(self.images.pixels(np.array([row]))[0])

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.pixels.task`; empty rows count for nothing."""
        fields = self.images.batch(rows, rng)
        targets = fields["tokens"]
        starts = np.full((len(rows), 1), self.processor.start, np.int32)
        return {
            "tokens": np.concatenate([starts, targets[:, :-1]], 1),
            "targets": targets,
            "weights": np.repeat(fields["weights"][:, None], targets.shape[1], 1),
            "withheld": fields["withheld"],
        }
