"""The settings of pictures: how they become pixels, how they are changed at random in training, and --task=pixels."""

from typing import Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen
from tfm.options.slots import InputOptions


@frozen
class Pixels:
    """How a picture becomes pixels. The model says their height, width and channels (--model.input=patches).

    resize: shorter edge before the centre is cropped; none: a picture is resized to what the model reads
    mean: of values from 0 to 1, for each channel or for all
    std: the same
    resample: nearest | bilinear | bicubic | lanczos
    """

    resize: int | None = None
    mean: str = "0.5"
    std: str = "0.5"
    resample: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, resize=1)
        check_maximum(self, "no picture is as large", resize=1 << 13)
        for name in ("mean", "std"):
            parsed_channels(name, getattr(self, name))


def parsed_channels(name: str, text: str) -> list[float]:
    """`0.5` or `0.485,0.456,0.406` -> the numbers. Raises ValueError for anything else."""
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        values = []
    if len(values) not in (1, 3) or not all(0 <= value <= 1 for value in values) or (name == "std" and not min(values)):
        raise ValueError(f"{name}={text} must be a number between 0 and 1, or three with commas, such as 0.5")
    return values


@frozen
class Augment:
    """Random changes of training pictures. All are off: in some data a mirrored picture has another label.

    flip: half of the pictures are mirrored
    crop: least share of a picture that a random part has, which is resized (Szegedy et al. 2015); none: no random part
    color: brightness, contrast and saturation change by at most this factor; 0: not
    randaugment: operations on each picture (Cubuk et al. 2020); 0: none
    magnitude: their strength, from 0 to 10
    erase: rate of pictures in which a rectangle is erased (Zhong et al. 2020)
    mixup: alpha of the Beta distribution by which two pictures are mixed (Zhang et al. 2018); 0: not
    cutmix: the same for a rectangle of another picture (Yun et al. 2019); with mixup, batches have either
    """

    flip: bool = False
    crop: float | None = None
    color: float = 0.0
    randaugment: int = 0
    magnitude: float = 9.0
    erase: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, randaugment=0, color=0, magnitude=0, mixup=0, cutmix=0, erase=0)
        check_maximum(self, "nothing of the picture would be left", color=1, erase=1, magnitude=10, randaugment=16)
        check_maximum(self, "both pictures would have equal shares", mixup=1000, cutmix=1000)
        if self.crop is not None and not 0 < self.crop <= 1:
            raise ValueError(f"crop={self.crop} must be more than 0 and at most 1; 0.08 is usual for photographs")

    @property
    def mixes(self) -> bool:
        """Whether pictures of a batch are mixed."""
        return bool(self.mixup or self.cutmix)

    @property
    def changes(self) -> bool:
        """Whether pictures are changed one by one before they are normalized."""
        return bool(self.flip or self.crop or self.color or self.randaugment)


def video_frames(options: InputOptions) -> int | None:
    """Frames of the videos that an input reads, arrays [F,H,W,C]; None of another input."""
    shape: tuple[int, ...] = options.array_shape or ()
    return shape[0] if len(shape) == 4 else None
