"""The options of objects in pictures."""

import math
from typing import ClassVar, Literal

from tfm.config.model import Config
from tfm.options.choices import MAX_LAYERS, check_fields, check_maximum, check_minimum, frozen, tag
from train.settings.images import Augment, Pixels
from train.settings.schema import Run
from train.settings.task_options import PICTURE_INPUTS, TaskOptions, check_cells


@frozen
class Detection(TaskOptions):
    """Objects in a picture, with a box around each (DETR: Carion et al. 2020).

    queries: boxes that a picture has at most; each reads the picture, and becomes an object or none
    layers: layers of the decoder of queries; each has a loss; 0: patches are the queries (Minderer et al. 2022)
    pixels: how a picture becomes pixels
    augment: random changes of training pictures and their boxes: flip, crop and color
    """

    reads_pictures: ClassVar[bool] = True
    inputs: ClassVar[tuple[str, ...]] = PICTURE_INPUTS

    name: Literal["detect"] = tag("detect")
    queries: int = 100
    layers: int = 6
    pixels: Pixels = Pixels()
    augment: Augment = Augment()

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, queries=1, layers=0)
        check_maximum(self, "no picture has as many objects", queries=1000)
        check_maximum(self, "no model is as large", layers=MAX_LAYERS)
        if self.augment.mixes or self.augment.randaugment or self.augment.erase:
            raise ValueError("augment.mixup, cutmix, randaugment and erase know no boxes; leave them out")
        if self.pixels.resize is not None:
            raise ValueError("pixels.resize crops the centre of pictures, and boxes are of all of it; leave it out")

    def check_task(self, run: Run) -> None:
        check_cells(1, run.model)
        if self.query_count(run.model) < self.queries:
            raise ValueError(
                f"task.queries={self.queries} must be at most {self.query_count(run.model)}, the patches of a picture, "
                "which are the queries where task.layers=0"
            )

    def query_count(self, model: Config) -> int:
        """The queries of a model: trained ones, or the patches of its last stage."""
        return self.queries if self.layers else math.prod(model.stage_configs[-1].input.grid or ())
