"""The options of pictures, pixel by pixel."""

import math
from typing import ClassVar, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from train.settings.schema import Run
from train.settings.task_options import TaskOptions


@frozen
class NextPixel(TaskOptions):
    """Pictures, pixel by pixel (ImageGPT: Chen et al. 2020). model.length says how many pixels a picture has.

    colours: of the palette, at most, by k-means over the training pictures
    grey: the palette is of greys
    resample: nearest | bilinear | bicubic | lanczos: how pictures are resized
    samples: pictures that the model makes at each evaluation, and of halves that it completes; 0: none
    """

    reads_pictures: ClassVar[bool] = True

    name: Literal["pixels"] = tag("pixels")
    colours: int = 512
    grey: bool = False
    resample: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    samples: int = 8

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, colours=2, samples=0)
        check_maximum(self, "k-means compares every pixel with every colour", colours=1 << 14)
        check_maximum(self, "they stand on one sheet", samples=64)
        if self.grey and self.colours > 256:
            raise ValueError(f"colours={self.colours} must be at most 256 with grey=true; 2 to 16 are usual")

    @property
    def vocab(self) -> int:
        """The colours and the start token."""
        return self.colours + 1

    def check_task(self, run: Run) -> None:
        side = math.isqrt(run.model.length)
        if side**2 != run.model.length:
            closest = max(1, round(run.model.length**0.5)) ** 2
            raise ValueError(
                f"model.length={run.model.length} must be the pixels of a square picture; try model.length={closest}"
            )
        if run.model.head.input_only != 1:
            raise ValueError(
                f"model.head.input_only={run.model.head.input_only} must be 1: the start token is never predicted"
            )
