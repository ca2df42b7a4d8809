"""The image processor: a picture -> the pixels that a model reads. A run folder keeps it as transformers does."""

import dataclasses
import json
import math
from collections.abc import Mapping

import numpy as np
from PIL import Image

from train.images.decoding import MODES, to_array

FILE = "preprocessor_config.json"

# Pillow's filters by the words of flags; config files have their numbers.
FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}

MAX_SIDE = 1 << 13

# Which frames of a video are read, in words.
_SAMPLING = "those in the middle of num_frames equal parts of a video"

# Left, top, right and bottom of a part of a picture, in pixels.
Box = tuple[float, float, float, float]


@dataclasses.dataclass(frozen=True)
class ImageProcessor:
    """How a picture becomes pixels.

    size: (height, width) that it is resized to; an int: what its shorter edge is resized to; None: it is not resized
    crop: (height, width) of the centre that is kept; None: all of it
    mean, std: of the channels, of values between 0 and 1; their count is that of the channels
    rescale: what values from 0 to 255 are multiplied by
    resample: a word of FILTERS
    frames: of a video, which are read below one another; None: pictures are read
    """

    size: tuple[int, int] | int | None
    crop: tuple[int, int] | None = None
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    rescale: float = 1 / 255
    resample: str = "bilinear"
    frames: int | None = None

    def __post_init__(self):
        sides = [*(self.size if isinstance(self.size, tuple) else [self.size]), *(self.crop or ())]
        if any(side is not None and not 1 <= side <= MAX_SIDE for side in sides):
            raise ValueError(f"size={self.size}, crop_size={self.crop}: sides must be from 1 to {MAX_SIDE:,} pixels")
        if len(self.mean) not in MODES or len(self.std) != len(self.mean):
            raise ValueError(
                f"image_mean={list(self.mean)} and image_std={list(self.std)} must have a number for each channel, "
                "1 or 3"
            )
        if not all(map(math.isfinite, (*self.mean, *self.std, self.rescale))) or min(self.std) <= 0:
            raise ValueError(f"image_std={list(self.std)} must be more than 0, and image_mean and factors finite")
        if self.crop is None and not isinstance(self.size, tuple):
            raise ValueError(
                f"size={self.size} leaves pictures of several shapes: name a height and a width, or do_center_crop "
                "and crop_size"
            )
        smallest = (self.size, self.size) if isinstance(self.size, int) else self.size
        if self.crop and smallest and (self.crop[0] > smallest[0] or self.crop[1] > smallest[1]):
            raise ValueError(f"crop_size={list(self.crop)} is larger than size={self.size}; make size larger")

    @property
    def channels(self) -> int:
        """Channels of a picture: 1 is grey, 3 are colours."""
        return len(self.mean)

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of what the model reads."""
        if self.crop is not None:
            return self.crop
        assert isinstance(self.size, tuple)
        return self.size

    @property
    def array_shape(self) -> tuple[int, ...]:
        """The shape [H,W,C] of a picture, or [F,H,W,C] of a video, as the model reads it."""
        return *(() if self.frames is None else (self.frames,)), *self.shape, self.channels

    @property
    def field(self) -> str:
        """What a batch calls what `normalize` makes."""
        return "pixels"

    def of_shape(self, height: int, width: int) -> "ImageProcessor":
        """The processor of pictures of another height and width; what they are cropped from grows as they do. Raises
        ValueError for a side that is too large."""
        shape = height, width
        if self.crop is None:
            return dataclasses.replace(self, size=shape)
        ratios = [side / cropped for side, cropped in zip(shape, self.crop, strict=True)]
        size = self.size
        if isinstance(size, int):
            size = round(size * max(ratios))
        elif size is not None:
            size = round(size[0] * ratios[0]), round(size[1] * ratios[1])
        return dataclasses.replace(self, size=size, crop=shape)

    def uncropped(self) -> "ImageProcessor":
        """The processor that makes all of a picture as large as what the model reads, and crops nothing."""
        return dataclasses.replace(self, size=self.shape, crop=None)

    def empty(self, count: int) -> np.ndarray:
        """Zeros of the shape and dtype that `normalize` returns for `count` pictures, float32 [count,H,W,C], or
        videos."""
        return np.zeros((count, *self.array_shape), np.float32)

    def prepare(self, image: Image.Image) -> np.ndarray:
        """A picture -> uint8 [H,W,C], resized and cropped; the frames of a video -> uint8 [F,H,W,C]."""
        if self.frames is not None:
            frame, height = dataclasses.replace(self, frames=None), image.height // self.frames
            tops = range(0, height * self.frames, height)
            return np.stack([frame.prepare(image.crop((0, top, image.width, top + height))) for top in tops])
        height, width = self._target(image.height, image.width)
        if max(height, width) > MAX_SIDE and self.crop is not None:
            return to_array(self._resized_centre(image, height, width))
        if (height, width) != (image.height, image.width):
            image = image.resize((width, height), FILTERS[self.resample])
        return to_array(image if self.crop is None else _centre(image, self.crop))

    def resized(self, image: Image.Image, box: Box) -> Image.Image:
        """The part `box` (left, top, right, bottom) of a picture, at the size that the model reads."""
        height, width = self.shape
        return image.resize((width, height), FILTERS[self.resample], box=box)

    def normalize(self, pixels: np.ndarray) -> np.ndarray:
        """Values from 0 to 255 [...,H,W,C] -> float32 with the mean and the deviation of the model's data."""
        scale = (self.rescale / np.asarray(self.std)).astype(np.float32)
        shift = (np.asarray(self.mean) / np.asarray(self.std)).astype(np.float32)
        return pixels * scale - shift

    def restore(self, pixels: np.ndarray) -> np.ndarray:
        """The inverse of `normalize`: float32 [...,H,W,C] -> uint8."""
        values = (pixels * np.asarray(self.std) + np.asarray(self.mean)) / self.rescale
        return np.clip(np.rint(values), 0, 255).astype(np.uint8)

    def _target(self, height: int, width: int) -> tuple[int, int]:
        """Height and width after resizing; of a shorter edge, the longer one keeps the proportion."""
        if self.size is None:
            return height, width
        if isinstance(self.size, tuple):
            return self.size
        short, long = sorted((height, width))
        edge = max(1, int(self.size * long / short))
        return (self.size, edge) if height <= width else (edge, self.size)

    def _resized_centre(self, image: Image.Image, height: int, width: int) -> Image.Image:
        """The centre of a picture as it is in one of height x width pixels, which is never made: a long one fills the
        memory."""
        assert self.crop is not None
        top, left = (height - self.crop[0]) // 2, (width - self.crop[1]) // 2
        down, right = image.height / height, image.width / width
        box = left * right, top * down, (left + self.crop[1]) * right, (top + self.crop[0]) * down
        return image.resize((self.crop[1], self.crop[0]), FILTERS[self.resample], box=box)


def _centre(image: Image.Image, crop: tuple[int, int]) -> Image.Image:
    """The middle of a picture; what lies outside of a smaller picture is black."""
    top, left = (image.height - crop[0]) // 2, (image.width - crop[1]) // 2
    return image.crop((left, top, left + crop[1], top + crop[0]))


def _fields(processor: ImageProcessor) -> dict[str, object]:
    """The fields of preprocessor_config.json, as transformers names them."""
    size, crop = processor.size, processor.crop
    is_exact = isinstance(size, tuple)
    kind = "ViTImageProcessor" if crop is None else "DeiTImageProcessor" if is_exact else "CLIPImageProcessor"
    fields: dict[str, object] = {
        "image_processor_type": kind,
        "do_convert_rgb": processor.channels == 3,
        "do_resize": size is not None,
        "size": _sides(size) if isinstance(size, tuple) else {"shortest_edge": size},
        "resample": int(FILTERS[processor.resample]),
        "do_center_crop": crop is not None,
        "do_rescale": True,
        "rescale_factor": processor.rescale,
        "do_normalize": True,
        "image_mean": list(processor.mean),
        "image_std": list(processor.std),
    }
    if crop is not None:
        fields["crop_size"] = _sides(crop)
    if size is None:
        del fields["size"]
    if processor.frames is not None:
        fields |= {
            "image_processor_type": "VideoMAEImageProcessor",
            "num_frames": processor.frames,
            "frames": _SAMPLING,
        }
    return fields


def _sides(size: tuple[int, int]) -> dict[str, int]:
    return {"height": size[0], "width": size[1]}


def processor_text(processor: ImageProcessor) -> str:
    """The content of preprocessor_config.json."""
    return fields_text(_fields(processor))


def fields_text(fields: Mapping[str, object]) -> str:
    """The fields of preprocessor_config.json as its content."""
    return json.dumps(fields, indent=2, sort_keys=True) + "\n"
