"""The options of pictures out of pictures."""

from typing import ClassVar, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from train.settings.images import Augment, Pixels
from train.settings.schema import Run
from train.settings.task_options import PICTURE_INPUTS, TaskOptions, check_cells


@frozen
class Restoration(TaskOptions):
    """Pictures of which something is lost, made complete: more pixels (Dong et al. 2014), colours (Zhang et al. 2016),
    or what was in a hole (Pathak et al. 2016; of patches: Xie et al. 2022).

    kind: upscale | colour | holes: what is lost
    scale: of upscale, pixels of a side for each that the model reads
    share: of holes, the share of a picture that is removed
    shape: rectangle | patches: of holes, what is removed: one rectangle, or random patches of the model
    pixels: how a picture becomes pixels
    augment: random changes of training pictures: flip, crop, color
    """

    reads_pictures: ClassVar[bool] = True
    inputs: ClassVar[tuple[str, ...]] = PICTURE_INPUTS

    name: Literal["restore"] = tag("restore")
    kind: Literal["upscale", "colour", "holes"] = "upscale"
    scale: int = 2
    share: float = 0.2
    shape: Literal["rectangle", "patches"] = "rectangle"
    pixels: Pixels = Pixels()
    augment: Augment = Augment()

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, scale=2)
        check_maximum(self, "no picture tells as much of its pixels", scale=8)
        if not 0 < self.share < 1:
            raise ValueError(f"share={self.share} must be more than 0 and less than 1; 0.2 is usual, of patches 0.6")
        if self.augment.mixes or self.augment.randaugment or self.augment.erase:
            raise ValueError("augment.mixup, cutmix, randaugment and erase change what is right; leave them out")

    @property
    def factor(self) -> int:
        """Pixels of a side of the result for each that the model reads."""
        return self.scale if self.kind == "upscale" else 1

    def check_task(self, run: Run) -> None:
        check_cells(1, run.model)
        channels = getattr(run.model.input, "channels", 3)
        if self.kind == "colour" and channels != 3:
            raise ValueError(f"task.kind=colour makes three channels, and model.input.channels={channels}; say 3")
