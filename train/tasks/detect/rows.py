"""Rows of pictures and the boxes of their objects."""

from collections.abc import Iterator, Sequence

import numpy as np

from train.data.sources.files import Row
from train.images import boxes
from train.images.rows import ImageRows
from train.settings.images import Augment
from train.tasks.record import Facts


class BoxRows:
    """The pictures of `ImageRows`, each with boxes, `places` at most, which are cropped and mirrored as it is.

    classes: the names of classes, in the order of labels
    queries: those of the model, for each picture
    """

    buckets, padding, batches_ahead, independent_rows = None, 0.0, 2, True

    def __init__(self, images: ImageRows, rows: Sequence[Row], classes: Sequence[str], places: int, queries: int):
        self.images, self.places, self.queries, self.classes = images, places, queries, classes
        self.rows, self.index = rows, {name: index for index, name in enumerate(classes)}
        self.tokens = images.tokens

    def __len__(self):
        return len(self.images)

    def overview(self, facts: Facts) -> dict[str, str]:
        """Lines of the start-up table; `facts` are those of run.json about the data."""
        return self.images.overview(facts) | {
            "boxes": f"{facts['boxes']:,}, {facts['boxes_in_a_picture']} in a picture at most"
        }

    def example_ids(self) -> Iterator[np.ndarray]:
        """No picture has tokens of a vocabulary."""
        return iter(())

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.detect.task`; empty rows count for nothing."""
        seeds = rng.integers(1 << 62, size=len(rows))
        is_row, withheld = rows >= 0, self.images.withheld[rows]
        return {
            self.images.processor.field: self.images.read(rows, seeds),
            **self.targets(rows, seeds),
            "queries": np.full(len(rows), self.queries, np.float32),
            "weights": (is_row & ~withheld).astype(np.float32),
            "withheld": (is_row & withheld).astype(np.float32),
        }

    def targets(self, rows: np.ndarray, seeds: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """The fields of the objects of pictures, each changed by its seed, if there are some."""
        shape = len(rows), self.places
        fields = {
            "labels": np.zeros(shape, np.int32),
            "boxes": np.zeros((*shape, 4), np.float32),
            "objects": np.zeros(shape, np.float32),
            "crowds": np.zeros(shape, np.float32),
        }
        for place in np.flatnonzero(rows >= 0):
            inner = self.rows[rows[place]]["boxes"]
            numbers = self.numbers(rows[place], None if seeds is None else int(seeds[place]))
            for slot, (box, row) in enumerate(zip(inner, numbers, strict=True)):
                fields["labels"][place, slot] = self.index[box.name]
                fields["boxes"][place, slot] = row
                fields["crowds" if box.crowd else "objects"][place, slot] = min(row[2:]) > 0
        return fields

    def numbers(self, row: int, seed: int | None = None) -> np.ndarray:
        """The boxes of a row, float64 [k,4] in parts of the picture; those of a picture that the seed changes."""
        source, augment = self.rows[row], self.images.augment
        geometry = Augment(flip=augment.flip, crop=augment.crop)  # the first random numbers of a picture
        numbers = boxes.scaled(source["boxes"], *source["size"])
        if not geometry.changes or seed is None:
            return numbers
        return boxes.changed(numbers, source["size"], geometry, np.random.default_rng(seed))
