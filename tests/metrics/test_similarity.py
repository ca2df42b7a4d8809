"""PSNR and SSIM against windows one by one."""

import math

import numpy as np
import pytest

from train.metrics.similarity import psnr, ssim


def plain_ssim(image, truth):
    """The mean over channels and windows of 11 x 11 pixels under a Gaussian (Wang et al. 2004, eq. 13 to 16)."""
    weights = np.array(
        [[math.exp(-((i - 5) ** 2 + (j - 5) ** 2) / (2 * 1.5**2)) for j in range(11)] for i in range(11)]
    )
    weights /= weights.sum()
    values = []
    for top, left, channel in np.ndindex(image.shape[0] - 10, image.shape[1] - 10, image.shape[2]):
        x, y = (picture[top : top + 11, left : left + 11, channel].astype(np.float64) for picture in (image, truth))
        mean_x, mean_y = (weights * x).sum(), (weights * y).sum()
        variance_x, variance_y = (weights * (x - mean_x) ** 2).sum(), (weights * (y - mean_y) ** 2).sum()
        covariance = (weights * (x - mean_x) * (y - mean_y)).sum()
        numerator = (2 * mean_x * mean_y + 2.55**2) * (2 * covariance + 7.65**2)
        values.append(numerator / ((mean_x**2 + mean_y**2 + 2.55**2) * (variance_x + variance_y + 7.65**2)))
    return sum(values) / len(values)


def test_psnr_and_ssim_are_those_of_a_loop():
    """200 random pictures: noise, flat parts, nearly equal ones, in grey and in colours."""
    rng = np.random.default_rng(0)
    for shape in ((13, 12, 3), (11, 14, 1)):
        truths = rng.integers(0, 256, (100, *shape)).astype(np.float32)
        truths[:20] = truths[:20, :1, :1]
        noise = rng.normal(size=truths.shape) * rng.choice([1, 10, 100], 100)[:, None, None, None]
        images = np.clip(np.rint(truths + noise), 0, 255).astype(np.float32)
        errors = ((images.astype(np.float64) - truths) ** 2).mean((1, 2, 3))
        expected = [10 * math.log10(255**2 / error) if error else 100 for error in errors]
        np.testing.assert_allclose(psnr(images, truths), expected, rtol=1e-5)
        plain = [plain_ssim(image, truth) for image, truth in zip(images, truths, strict=True)]
        np.testing.assert_allclose(ssim(images, truths), plain, atol=2e-4)


def test_equal_and_small_pictures():
    images = np.random.default_rng(0).integers(0, 256, (2, 4, 20, 3)).astype(np.float32)
    assert np.asarray(psnr(images, images)).tolist() == [100, 100]
    np.testing.assert_allclose(ssim(images, images), 1, atol=1e-5)
    assert float(ssim(images, 255 - images)[0]) == pytest.approx(float(ssim(255 - images, images)[0]), abs=1e-5)
