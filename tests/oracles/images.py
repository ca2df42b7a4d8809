"""Images by numpy and loops: pixels [B,H,W,C] and the parameters of embeddings -> [B,T,D]."""

from typing import Any

import numpy as np


def embedded(tables: Any, patch: int, pixels: np.ndarray) -> np.ndarray:
    """The vectors before the patches, then W x + b of the pixels x of each patch, row by row; without positions."""
    kernel, bias = np.asarray(tables.projection.kernel, np.float64), tables.projection.bias
    images = []
    for image in np.asarray(pixels, np.float64):
        vectors = [np.asarray(vector, np.float64) for vector in (tables.cls, tables.distilled) if vector is not None]
        for top in range(0, image.shape[0], patch):
            for left in range(0, image.shape[1], patch):
                vector = np.zeros(kernel.shape[-1]) if bias is None else np.array(bias, np.float64)
                for y, x, channel in np.ndindex(patch, patch, image.shape[2]):
                    vector += image[top + y, left + x, channel] * kernel[y, x, channel]
                vectors.append(vector)
        images.append(np.stack(vectors))
    return np.stack(images)


def waves(place: float, width: int) -> np.ndarray:
    """Sines, then cosines of a place, of wavelengths from 2 pi on; zeros for a vector that has no place, -1."""
    angles = np.array([place / 10_000 ** (2 * n / width) for n in range(width // 2)])
    return np.concatenate([np.sin(angles), np.cos(angles)]) * (place >= 0)


def rotated(x: np.ndarray, row: int, column: int, base: float) -> np.ndarray:
    """A query or key [H]: of its pairs (n, n + H/2), the first half turn by the row, the second by the column."""
    y, half, pairs = x.copy(), len(x) // 2, len(x) // 4
    for n in range(half):
        angle = (row if n < pairs else column) * base ** (-(n % pairs) / pairs)
        first, second = x[n], x[n + half]
        y[n] = first * np.cos(angle) - second * np.sin(angle)
        y[n + half] = second * np.cos(angle) + first * np.sin(angle)
    return y
