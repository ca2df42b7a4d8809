"""Pictures of which something is lost, and the answer that needs no model."""

import math

import numpy as np
from PIL import Image

from train.images.decoding import to_array

# Height over width of a rectangle that is removed, at most, and the inverse at least.
_PROPORTION = 2.0


def resized(pixels: np.ndarray, height: int, width: int) -> np.ndarray:
    """uint8 [H,W,C] -> uint8 [height,width,C]: bicubic, with antialiasing where it becomes smaller."""
    if pixels.shape[:2] == (height, width):
        return pixels
    image = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
    return to_array(image.resize((width, height), Image.Resampling.BICUBIC))


def grey(pixels: np.ndarray) -> np.ndarray:
    """uint8 [H,W,3] -> the same in grey (ITU-R 601-2), with three equal channels."""
    return np.repeat(to_array(Image.fromarray(pixels).convert("L")), 3, 2)


def rectangle(height: int, width: int, share: float, rng: np.random.Generator) -> np.ndarray:
    """bool [height,width]: a rectangle of this share of a picture, of random proportions, at a random place."""
    area, bound = share * height * width, math.log(_PROPORTION)
    rows = min(height, max(1, round(math.sqrt(area * math.exp(rng.uniform(-bound, bound))))))
    columns = min(width, max(1, round(area / rows)))
    top, left = rng.integers(height - rows + 1), rng.integers(width - columns + 1)
    holes = np.zeros((height, width), bool)
    holes[top : top + rows, left : left + columns] = True
    return holes


def squares(height: int, width: int, share: float, side: int, rng: np.random.Generator) -> np.ndarray:
    """bool [height,width]: this share of the squares of a grid, chosen at random (Xie et al. 2022, section 3.2)."""
    rows, columns = height // side, width // side
    chosen = np.zeros(rows * columns, bool)
    chosen[: max(1, round(share * len(chosen)))] = True
    return np.kron(rng.permuted(chosen).reshape(rows, columns), np.ones((side, side), bool))


def trivial(seen: np.ndarray, holes: np.ndarray) -> np.ndarray:
    """What is seen uint8 [h,w,C], and what is asked for bool [H,W] -> uint8 [H,W,C]: resized bicubically; holes in it
    have the mean colour of the rest."""
    start = resized(seen, *holes.shape)
    if holes.all():
        return start
    mean = np.rint(start[~holes].mean(0)).astype(np.uint8)
    return np.where(holes[:, :, None], mean, start)
