"""Palettes: k-means over the colours of pictures, and the processor that makes pixels tokens of a palette.

A run folder keeps the palette in preprocessor_config.json, as `clusters`, as transformers does (ImageGPT: Chen et al.
2020, section 3.1).
"""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from tfm.options.choices import check_type
from tfm.options.json_text import read_object
from train.data.processors import ProcessorKind, read_folder
from train.images.processor import FILE, Box, ImageProcessor, fields_text, processor_text
from train.images.processor_file import class_defaults, model_class, of_fields
from train.settings.images import video_frames
from train.text.hf_tokenizer import MarksTexts

if TYPE_CHECKING:
    from tfm.config.model import Config
    from train.settings.schema import Run


# Pixels that a palette is made from, rounds of k-means, and pixels that are compared with all colours at a time.
SAMPLE, _ROUNDS, _AT_A_TIME = 1 << 16, 20, 1 << 14


@dataclasses.dataclass(frozen=True)
class PaletteProcessor:
    """How a picture becomes tokens: those of the nearest colours, row by row.

    images: how it becomes pixels in three channels, normalized
    clusters: the colours of the palette, normalized as those pixels are
    """

    images: ImageProcessor
    clusters: tuple[tuple[float, ...], ...]

    def __post_init__(self):
        if len(self.clusters) < 2 or any(len(colour) != 3 for colour in self.clusters):
            raise ValueError(f"clusters has {len(self.clusters)} colours; there must be 2 or more, of 3 numbers each")
        if not all(math.isfinite(value) for colour in self.clusters for value in colour) or self.images.channels != 3:
            raise ValueError("clusters must be finite colours of three channels")

    @property
    def channels(self) -> int:
        """Channels of a picture."""
        return self.images.channels

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of a picture."""
        return self.images.shape

    @property
    def start(self) -> int:
        """The token before the first pixel."""
        return len(self.clusters)

    @property
    def field(self) -> str:
        """What a batch calls what `normalize` makes."""
        return "tokens"

    def empty(self, count: int) -> np.ndarray:
        """Zeros of the shape and dtype that `normalize` returns for `count` pictures, int32 [count,H*W]."""
        return np.zeros((count, math.prod(self.shape)), np.int32)

    def prepare(self, image: Image.Image) -> np.ndarray:
        """A picture -> uint8 [H,W,3], resized."""
        return self.images.prepare(image)

    def resized(self, image: Image.Image, box: Box) -> Image.Image:
        """The part `box` of a picture, at the size that the model reads."""
        return self.images.resized(image, box)

    def normalize(self, pixels: np.ndarray) -> np.ndarray:
        """uint8 [...,H,W,3] -> int32 [...,H*W]: the nearest colours."""
        values = self.images.normalize(pixels)
        return nearest(values.reshape(-1, 3), self._colours).reshape(*pixels.shape[:-3], -1)

    def restore(self, tokens: np.ndarray) -> np.ndarray:
        """Tokens [...,H*W] -> uint8 [...,H,W,3]."""
        colours = self.images.restore(self._colours)
        return colours[tokens].reshape(*tokens.shape[:-1], *self.shape, 3)

    @cached_property
    def _colours(self) -> np.ndarray:
        return np.array(self.clusters, np.float32)


def fit(pictures: Sequence[np.ndarray], count: int, grey: bool, rng: np.random.Generator) -> np.ndarray:
    """Pictures uint8 [H,W,3] -> a palette uint8 [V,3] of at most `count` colours, from dark to light.

    grey: of greys, whose channels are equal. Pictures with fewer colours have a smaller palette.
    """
    pixels = np.concatenate([picture.reshape(-1, 3) for picture in pictures])
    if len(pixels) > SAMPLE:
        pixels = pixels[rng.choice(len(pixels), SAMPLE, replace=False)]
    values = np.rint(pixels.mean(1, keepdims=True)) if grey else pixels
    points, weights = np.unique(values, axis=0, return_counts=True)
    centres = points if len(points) <= count else k_means(points, weights, count, rng)
    palette = np.unique(np.clip(np.rint(centres), 0, 255).astype(np.uint8), axis=0)
    return np.repeat(palette, 3, 1) if grey else palette[np.argsort(palette.sum(1, dtype=int), kind="stable")]


def k_means(points: np.ndarray, weights: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """points [N,C] that count `weights` times -> float32 [count,C]: the means of their clusters.

    Source: Lloyd 1982; begun as Arthur & Vassilvitskii 2007, section 2.2, say.
    """
    points, weights = points.astype(np.float32), weights.astype(np.float64)
    centres = points[rng.choice(len(points), 1, p=weights / weights.sum())]
    distances = np.square(points - centres[0]).sum(1)
    while len(centres) < count:
        chances = distances * weights
        centre = points[rng.choice(len(points), p=chances / chances.sum())]
        centres = np.concatenate([centres, centre[None]])
        distances = np.minimum(distances, np.square(points - centre).sum(1))
    for _ in range(_ROUNDS):
        labels = nearest(points, centres)
        mass = np.bincount(labels, weights, count)
        sums = np.stack([np.bincount(labels, weights * channel, count) for channel in points.T], 1)
        centres = np.where(mass[:, None] > 0, sums / np.maximum(mass, 1)[:, None], centres).astype(np.float32)
    return centres


def nearest(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """points [N,C], centres [V,C] -> int32 [N]: the centre at the smallest distance, the first of equal ones."""
    sizes = np.square(centres).sum(1)
    parts = [points[start : start + _AT_A_TIME] for start in range(0, len(points), _AT_A_TIME)]
    return np.concatenate([(sizes - 2 * part @ centres.T).argmin(1) for part in parts]).astype(np.int32)


def palette_processor(side: int, palette: np.ndarray, resample: str) -> PaletteProcessor:
    """The processor of square pictures and a palette uint8 [V,3]."""
    processor = ImageProcessor((side, side), resample=resample)
    return PaletteProcessor(processor, tuple(map(tuple, processor.normalize(palette).tolist())))


AnyProcessor = ImageProcessor | PaletteProcessor


def to_text(processor: AnyProcessor) -> str:
    """The content of preprocessor_config.json."""
    if isinstance(processor, ImageProcessor):
        return processor_text(processor)
    fields = json.loads(processor_text(processor.images))
    clusters = [list(colour) for colour in processor.clusters]
    fields |= {"image_processor_type": "ImageGPTImageProcessor", "do_color_quantize": True, "clusters": clusters}
    return json.dumps(fields, sort_keys=True) + "\n"


def _to_texts(processor: AnyProcessor) -> tuple[str, ...]:
    return (to_text(processor),)


def read(path: Path) -> AnyProcessor:
    """A processor from preprocessor_config.json. Raises ValueError for a damaged file, or one that it cannot follow."""
    return _of_fields(read_object(path), "ViT")


def _of_fields(fields: Mapping[str, Any], default_class: str) -> AnyProcessor:
    """A processor from the fields of a file. Raises ValueError for those that it cannot follow."""
    processor = of_fields(fields, default_class)
    if "clusters" not in class_defaults(fields, default_class).reads:
        return processor
    if fields.get("do_color_quantize", True) is not True:
        raise ValueError(f"do_color_quantize={fields['do_color_quantize']!r} is not supported; true is")
    if fields.get("clusters") is None:
        raise ValueError("there are no clusters, the colours of the palette; add them")
    colours = check_type("clusters", fields["clusters"], list[list[float]])
    return PaletteProcessor(processor, tuple(tuple(map(float, colour)) for colour in colours))


def read_hf(folder: Path, model: "Config") -> AnyProcessor:
    """The processor of a Hugging Face folder. Raises UserError where there is none, ValueError for a damaged one."""

    def of_fields(fields: Mapping[str, object]) -> AnyProcessor:
        processor = _of_fields(fields, model_class(folder))
        if isinstance(processor, ImageProcessor):
            return dataclasses.replace(processor, frames=video_frames(model.input))
        return processor

    return read_folder(folder, "image_processor", of_fields)


def save_hf(processor: AnyProcessor, task: MarksTexts, run: "Run", folder: Path):
    """Writes preprocessor_config.json."""
    write_fields(processor, folder)


def write_fields(processor: AnyProcessor, folder: Path, **further: object):
    """Writes preprocessor_config.json, with `further` fields of the class of a task."""
    (folder / FILE).write_text(fields_text(json.loads(to_text(processor)) | further))


# Of captions, whose pictures are never those of a palette, too.
IMAGE_PROCESSOR: ProcessorKind[Any] = ProcessorKind((FILE,), _to_texts, read, read_hf, save_hf)
