"""Random changes of pictures in training: a pure function of a picture and the random numbers of its row.

Each row has a generator of its own, so that neither the other rows of a batch nor the count of processes matter.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from train.images.decoding import to_array
from train.images.palette import AnyProcessor
from train.images.processor import Box
from train.settings.images import Augment

# The proportions of width and height of a random crop (Szegedy et al. 2015), and how often one is tried.
_PROPORTIONS = (3 / 4, 4 / 3)
_TRIES = 10

# The share of a picture that is erased (Zhong et al. 2020, table 1), and its proportions.
_ERASED, _ERASED_PROPORTIONS = (0.02, 0.33), (0.3, 1 / 0.3)

# What RandAugment's magnitudes are counted to (Cubuk et al. 2020).
MAX_MAGNITUDE = 10


def augmented(image: Image.Image, processor: AnyProcessor, options: Augment, rng: np.random.Generator) -> np.ndarray:
    """A picture -> uint8 [H,W,C], cropped, mirrored and recoloured at random as the options say.

    Without a random crop it is resized and cropped as the processor says.
    """
    if options.crop is None:
        image = _image(processor.prepare(image))
    else:
        image = processor.resized(image, random_box(image.width, image.height, options.crop, rng))
    if options.flip and rng.random() < 0.5:
        image = ImageOps.mirror(image)
    if options.color:
        image = _recoloured(image, options.color, rng)
    for name in rng.choice(list(OPERATIONS), options.randaugment) if options.randaugment else ():
        image = OPERATIONS[name](image, options.magnitude / MAX_MAGNITUDE, rng)
    return to_array(image)


def erased(pixels: np.ndarray, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Normalized pixels [H,W,C] -> the same; at this rate, a rectangle becomes 0, the mean (Zhong et al. 2020)."""
    if rng.random() >= rate:
        return pixels
    height, width = pixels.shape[:2]
    left, top, right, bottom = map(round, _box(width, height, _ERASED, _ERASED_PROPORTIONS, rng))
    result = pixels.copy()
    result[top:bottom, left:right] = 0
    return result


def random_box(width: int, height: int, smallest: float, rng: np.random.Generator) -> Box:
    """Left, top, right and bottom of a part of a picture that has at least this share of it (Szegedy et al. 2015)."""
    return _box(width, height, (smallest, 1.0), _PROPORTIONS, rng)


def _box(
    width: int, height: int, shares: tuple[float, float], proportions: tuple[float, float], rng: np.random.Generator
) -> Box:
    """A part of a picture of random area, proportions and place; all of it where none of several fits."""
    for _ in range(_TRIES):
        area = rng.uniform(*shares) * width * height
        proportion = math.exp(rng.uniform(math.log(proportions[0]), math.log(proportions[1])))
        box_width, box_height = math.sqrt(area * proportion), math.sqrt(area / proportion)
        left, top = rng.random() * (width - box_width), rng.random() * (height - box_height)
        if box_width <= width and box_height <= height:
            return left, top, left + box_width, top + box_height
    return 0.0, 0.0, float(width), float(height)


def _recoloured(image: Image.Image, strength: float, rng: np.random.Generator) -> Image.Image:
    """Brightness, contrast and saturation times 1 - strength to 1 + strength, in random order."""
    kinds = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
    for index in rng.permutation(len(kinds)):
        factor = max(0.0, rng.uniform(1 - strength, 1 + strength))
        image = kinds[index](image).enhance(factor)
    return image


# A picture, a strength from 0 to 1 and random numbers -> a picture.
Operation = Callable[[Image.Image, float, np.random.Generator], Image.Image]


def _enhance(kind: type) -> Operation:
    """A factor from 0.1 to 1.9, the farther from 1 the stronger."""

    def operation(image: Image.Image, strength: float, rng: np.random.Generator) -> Image.Image:
        return kind(image).enhance(1 + _sign(rng) * 0.9 * strength)

    return operation


def _affine(matrix: Callable[[float, Image.Image], tuple[float, ...]], largest: float) -> Operation:
    """A shear or a shift, by at most `largest`; what comes into the picture is grey."""

    def operation(image: Image.Image, strength: float, rng: np.random.Generator) -> Image.Image:
        values = matrix(_sign(rng) * largest * strength, image)
        return image.transform(image.size, Image.Transform.AFFINE, values, fillcolor=_grey(image))

    return operation


def _rotate(image: Image.Image, strength: float, rng: np.random.Generator) -> Image.Image:
    return image.rotate(_sign(rng) * 30 * strength, fillcolor=_grey(image))


def _posterize(image: Image.Image, strength: float, rng: np.random.Generator) -> Image.Image:
    return ImageOps.posterize(image, 8 - round(4 * strength))


def _solarize(image: Image.Image, strength: float, rng: np.random.Generator) -> Image.Image:
    return ImageOps.solarize(image, 256 - round(256 * strength))


def _sign(rng: np.random.Generator) -> int:
    return 1 if rng.random() < 0.5 else -1


def _grey(image: Image.Image) -> int | tuple[int, ...]:
    return 128 if image.mode == "L" else (128, 128, 128)


def _image(pixels: np.ndarray) -> Image.Image:
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


# The operations of RandAugment (Cubuk et al. 2020, section 3), with the ranges of AutoAugment (2019, table 6).
OPERATIONS: Mapping[str, Operation] = {
    "identity": lambda image, strength, rng: image,
    "autocontrast": lambda image, strength, rng: ImageOps.autocontrast(image),
    "equalize": lambda image, strength, rng: ImageOps.equalize(image),
    "rotate": _rotate,
    "solarize": _solarize,
    "posterize": _posterize,
    "color": _enhance(ImageEnhance.Color),
    "contrast": _enhance(ImageEnhance.Contrast),
    "brightness": _enhance(ImageEnhance.Brightness),
    "sharpness": _enhance(ImageEnhance.Sharpness),
    "shear_x": _affine(lambda value, image: (1, value, 0, 0, 1, 0), 0.3),
    "shear_y": _affine(lambda value, image: (1, 0, 0, value, 1, 0), 0.3),
    "translate_x": _affine(lambda value, image: (1, 0, value * image.width, 0, 1, 0), 0.45),
    "translate_y": _affine(lambda value, image: (1, 0, 0, 0, 1, value * image.height), 0.45),
}
