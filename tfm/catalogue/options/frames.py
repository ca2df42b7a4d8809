"""Inputs along time: frames of sounds and of other series, and tubes of videos."""

import math
from typing import ClassVar, Literal

from tfm.catalogue.options.inputs import Patches, number_pairs
from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.model import ModelConfig
from tfm.options.slots import InputOptions


@frozen
class Frames(InputOptions):
    """Frames of a sound or of another series, through convolutions along time (Whisper: Radford et al. 2022, section
    2.2).

    Raises ValueError for convolutions that are none.

    size: frames of an input
    channels: numbers of a frame, such as the bands of a spectrogram
    convolutions: WIDTHxSTRIDE of the convolutions, joined by commas; 16x16 alone makes patches of 16 frames
    activation: gelu | none: behind each convolution
    mask_padding: layers do not see frames behind the end of an input
    bias: add a bias in convolutions
    norm: normalize the embeddings
    """

    name: Literal["frames"] = tag("frames")
    reads_packed: ClassVar[bool] = False
    ignores: ClassVar[tuple[str, ...]] = Patches.ignores
    size: int = 3000
    channels: int = 80
    convolutions: str = "3x1,3x2"
    activation: Literal["gelu", "none"] = "gelu"
    mask_padding: bool = True
    bias: bool = True
    norm: bool = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, size=1, channels=1)
        check_maximum(self, "no input is as large", size=1 << 20, channels=1 << 16)
        if not all(0 < width <= 1 << 12 and 0 < stride <= width for width, stride in self.layers or [(0, 0)]):
            raise ValueError(
                f"convolutions={self.convolutions} must be WIDTHxSTRIDE, joined by commas, with strides of at most the "
                "width, such as 3x1,3x2"
            )

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """Width and stride of the convolutions; none where the text does not say them."""
        return number_pairs(self.convolutions)

    @property
    def array_shape(self) -> tuple[int, ...] | None:
        return self.size, self.channels

    def max_length(self, config: ModelConfig) -> int:
        length = self.size
        for _, stride in self.layers:
            length = -(-length // stride)
        return length

    def sizes(self, config: ModelConfig) -> dict[str, int]:
        return {"U": config.width, "P": self.max_length(config)}


@frozen
class Spectrogram(InputOptions):
    """Squares of the frames of a sound, which may overlap, and trained vectors before them (AST: Gong et al. 2021,
    section 2.1). Frames and bands that fill no square at the end are not read.

    Raises ValueError for squares that are larger than the spectrogram.

    size: frames of an input
    channels: bands of a frame
    patch: side of a square, in frames and in bands
    time_stride: frames from a square to the next one
    band_stride: bands from a row of squares to the next one
    cls: a trained vector, [CLS], stands first; a head may read its state
    distilled: a second one follows, as in the DeiT from which AST starts
    bias: add a bias to what a square becomes
    norm: normalize the embeddings
    """

    name: Literal["spectrogram"] = tag("spectrogram")
    reads_packed: ClassVar[bool] = False
    ignores: ClassVar[tuple[str, ...]] = Patches.ignores
    size: int = 1024
    channels: int = 128
    patch: int = 16
    time_stride: int = 10
    band_stride: int = 10
    cls: bool = True
    distilled: bool = True
    bias: bool = True
    norm: bool = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, **dict.fromkeys(("size", "channels", "patch", "time_stride", "band_stride"), 1))
        check_maximum(self, "no input is as large", size=1 << 20, channels=1 << 16)
        if self.patch > min(self.size, self.channels):
            raise ValueError(
                f"patch={self.patch} is more than the size={self.size} frames or the channels={self.channels} of an "
                "input; make it smaller"
            )
        if self.distilled and not self.cls:
            raise ValueError("distilled=true puts a vector behind [CLS], and cls=false has none; add cls=true")

    @property
    def array_shape(self) -> tuple[int, ...] | None:
        return self.size, self.channels

    @property
    def axes(self) -> tuple[int, int]:
        rows = (self.channels - self.patch) // self.band_stride + 1
        return rows, (self.size - self.patch) // self.time_stride + 1

    @property
    def prefix(self) -> int:
        return self.cls + self.distilled

    def max_length(self, config: ModelConfig) -> int:
        return self.prefix + math.prod(self.axes)

    def sizes(self, config: ModelConfig) -> dict[str, int]:
        return {"U": config.width, "P": self.max_length(config)}


@frozen
class Tubes(InputOptions):
    """Patches of a video in space and time, and a trained vector before them (ViViT: Arnab et al. 2021, section 3.2).

    Raises ValueError for sizes that do not fit together.

    frames: frames of a video
    size: height of frames in pixels, and their width where image_width is none
    image_width: width of frames in pixels; none: they are squares
    tube: frames of a tube
    patch: side of a tube in pixels
    channels: numbers of a pixel: 3 for colours, 1 for grey
    cls: a trained vector, [CLS], stands first; a head may read its state
    bias: add a bias to what a tube becomes
    norm: normalize the embeddings
    """

    name: Literal["tubes"] = tag("tubes")
    reads_packed: ClassVar[bool] = False
    ignores: ClassVar[tuple[str, ...]] = Patches.ignores
    frames: int = 16
    size: int = 224
    image_width: int | None = None
    tube: int = 2
    patch: int = 16
    channels: int = 3
    cls: bool = True
    bias: bool = True
    norm: bool = False

    def __post_init__(self):
        check_fields(self)
        sizes = ("frames", "size", "image_width", "tube", "patch", "channels")
        check_minimum(self, **dict.fromkeys(sizes, 1))
        check_maximum(self, "no video is as large", **dict.fromkeys(sizes, 1 << 16))
        if self.frames % self.tube:
            nearest = max(1, round(self.frames / self.tube)) * self.tube
            raise ValueError(f"frames={self.frames} must be a multiple of tube={self.tube}; try frames={nearest}")
        self.patches  # noqa: B018  raises ValueError

    @property
    def patches(self) -> Patches:
        """How a frame is cut."""
        return Patches(size=self.size, image_width=self.image_width, patch=self.patch, channels=self.channels)

    @property
    def array_shape(self) -> tuple[int, ...] | None:
        return self.frames, *self.patches.pixels

    @property
    def axes(self) -> tuple[int, int, int]:
        return self.frames // self.tube, *self.patches.grid

    @property
    def prefix(self) -> int:
        return int(self.cls)

    def max_length(self, config: ModelConfig) -> int:
        return self.prefix + math.prod(self.axes)

    def sizes(self, config: ModelConfig) -> dict[str, int]:
        return {"U": config.width, "P": self.max_length(config)}
