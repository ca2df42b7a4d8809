"""Pictures of a batch that are mixed in pairs: mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019)."""

import math
from typing import NamedTuple

import numpy as np

from train.settings.images import Augment


class Mixed(NamedTuple):
    """Pixels [B,H,W,C], the row that each is mixed with, int [B], and the share of its own picture, float32 [B]."""

    pixels: np.ndarray
    partners: np.ndarray
    shares: np.ndarray


def mixed(pixels: np.ndarray, is_row: np.ndarray, options: Augment, rng: np.random.Generator) -> Mixed:
    """Pixels float32 [B,H,W,C] -> every row that is filled with another one of the batch.

    Where both are on, a batch has mixup or CutMix with equal probability, as in DeiT. Empty rows stay empty.
    """
    filled = np.flatnonzero(is_row)
    partners = np.arange(len(pixels))
    partners[filled] = np.roll(filled, 1)
    kinds = [kind for kind, rate in ((_mixup, options.mixup), (_cutmix, options.cutmix)) if rate]
    result, shares = kinds[rng.integers(len(kinds))](pixels, pixels[partners], options, rng)
    return Mixed(result, partners, shares.astype(np.float32))


def _mixup(
    pixels: np.ndarray, others_pixels: np.ndarray, options: Augment, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The weighted mean of two pictures; the weight is of Beta(alpha, alpha), one for each row."""
    shares = rng.beta(options.mixup, options.mixup, len(pixels)).astype(np.float32)
    weight = shares[:, None, None, None]
    return weight * pixels + (1 - weight) * others_pixels, shares


def _cutmix(
    pixels: np.ndarray, others_pixels: np.ndarray, options: Augment, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A rectangle of a picture is that of another one; its centre is anywhere, so that it may be cut off."""
    result, shares = pixels.copy(), np.ones(len(pixels))
    height, width = pixels.shape[1:3]
    for row, share in enumerate(rng.beta(options.cutmix, options.cutmix, len(pixels))):
        side = math.sqrt(1 - share)
        centre = rng.integers(height), rng.integers(width)
        top, left = (round(place - side * size / 2) for place, size in zip(centre, (height, width), strict=True))
        bottom, right = round(top + side * height), round(left + side * width)
        rows, columns = slice(max(0, top), max(0, bottom)), slice(max(0, left), max(0, right))
        result[row, rows, columns] = others_pixels[row, rows, columns]
        area = result[row, rows, columns, 0].size
        shares[row] = 1 - area / (height * width)
    return result, shares
