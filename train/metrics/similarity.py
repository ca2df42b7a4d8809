"""How alike two pictures are: PSNR, and SSIM (Wang et al. 2004). Values are from 0 to 255."""

import jax.numpy as jnp
import numpy as np
from jax import Array

# Side and deviation of the Gaussian window, and the constants that keep ratios finite (section III.B).
WINDOW, DEVIATION, K1, K2 = 11, 1.5, 0.01, 0.03

LARGEST_PSNR = 100.0  # of pictures that are equal


def psnr(images: Array, truths: Array) -> Array:
    """[B,H,W,C] twice -> decibels float32 [B]: 255 squared over the mean squared error of all channels."""
    errors = jnp.square(images - truths).mean((1, 2, 3))
    return jnp.minimum(10 * jnp.log10(255.0**2 / jnp.maximum(errors, 1e-12)), LARGEST_PSNR)


def ssim(images: Array, truths: Array) -> Array:
    """[B,H,W,C] twice -> float32 [B]: the mean over channels, and over all windows that lie within the picture; a side
    below 11 pixels is as large as its window."""
    _, height, width, _ = images.shape
    by_row, by_column = windows(height), windows(width)

    def mean(x: Array) -> Array:
        return jnp.einsum("jw,BiwC->BijC", by_column, jnp.einsum("ih,BhwC->BiwC", by_row, x))

    mean_x, mean_y = mean(images), mean(truths)
    variances = mean(images**2) + mean(truths**2) - mean_x**2 - mean_y**2
    covariance = mean(images * truths) - mean_x * mean_y
    c1, c2 = (K1 * 255) ** 2, (K2 * 255) ** 2
    similar = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    return (similar / ((mean_x**2 + mean_y**2 + c1) * (variances + c2))).mean((1, 2, 3))


def windows(size: int) -> np.ndarray:
    """float32 [windows,size]: the weights of a Gaussian window at every place within a line."""
    side = min(WINDOW, size)
    weights = np.exp(-((np.arange(side) - (side - 1) / 2) ** 2) / (2 * DEVIATION**2))
    return np.stack([np.pad(weights / weights.sum(), (n, size - side - n)) for n in range(size - side + 1)]).astype(
        np.float32
    )
