"""The options of classes of pixels."""

from typing import ClassVar, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from train.settings.images import Augment, Pixels
from train.settings.schema import Run
from train.settings.task_options import PICTURE_INPUTS, TaskOptions, check_cells


@frozen
class PixelClasses(TaskOptions):
    """A class for every pixel of a picture (SETR: Zheng et al. 2021; Segmenter: Strudel et al. 2021).

    cells: a patch has the classes of cells x cells parts, which are resized to pixels bilinearly; 1: of one
    head: linear | mlp: a map before the classes, with the activation of the model; SegFormer's head, which reads all
        stages, is said by model.head.decoder_width
    classes: names of the values 0, 1, ... of masks, with commas between; none: 0, 1, ...
    ignore: value of masks that has no class, and counts nowhere; none: all values are classes
    reduce_labels: value 0 of masks has no class, and the classes are the values 1, 2, ... (do_reduce_labels of
        transformers); task.ignore is then of values less 1
    pixels: how a picture becomes pixels
    augment: random changes of training pictures and their masks: flip, crop, color, and erase
    """

    reads_pictures: ClassVar[bool] = True
    inputs: ClassVar[tuple[str, ...]] = PICTURE_INPUTS

    name: Literal["segment"] = tag("segment")
    cells: int = 1
    head: Literal["linear", "mlp"] = "linear"
    classes: str = "none"
    ignore: int | None = 255
    reduce_labels: bool = False
    pixels: Pixels = Pixels()
    augment: Augment = Augment()

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, cells=1, ignore=0)
        check_maximum(self, "masks have values up to 255", ignore=255)
        names = self.class_names
        if names is not None and (len(names) < 2 or len({*names}) < len(names) or not all(names)):
            raise ValueError(f"classes={self.classes} must name two classes or more, such as ground,tree; or say none")
        if self.augment.mixes or self.augment.randaugment:
            raise ValueError("augment.mixup, cutmix and randaugment are not for masks; leave them out")

    @property
    def class_names(self) -> list[str] | None:
        """The names of classes, in the order of the values of masks; None where the flag names none."""
        return None if self.classes == "none" else [name.strip() for name in self.classes.split(",")]

    def check_task(self, run: Run) -> None:
        check_cells(self.cells, run.model)
        width = run.model.head.decoder_width
        if width is not None and self.head == "mlp":
            raise ValueError(
                f"task.head=mlp is a map before the classes, and model.head.decoder_width={width} ends with one; leave "
                "one of them out"
            )
