"""Filter banks of log-mel energies as Kaldi computes them (Povey et al. 2011), which AST reads (Gong et al. 2021)."""

import functools

import numpy as np

# How much of the sample before is taken from each one, the lowest frequency of a band in Hz, and the least energy.
_EMPHASIS, _LOWEST, _FLOOR = 0.97, 20.0, float(np.finfo(np.float32).eps)


def fbank(samples: np.ndarray, rate: int, window: int, hop: int, bands: int) -> np.ndarray:
    """samples float [N] -> float32 [T,bands], with T windows that lie inside of the sound, one at every `hop`-th
    sample.

    Of each window the mean is taken away, then 0.97 of the sample before each one, of the first itself; the power of
    its Hann window, filled up with zeros to a power of two, in triangular bands of mels; the natural logarithm of that.
    """
    windows = np.lib.stride_tricks.sliding_window_view(samples.astype(np.float64), window)[::hop]
    windows = windows - windows.mean(-1, keepdims=True)
    before = np.concatenate([windows[:, :1], windows[:, :-1]], axis=-1)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / (window - 1))
    size = 1 << (window - 1).bit_length()
    power = np.abs(np.fft.rfft((windows - _EMPHASIS * before) * hann, size, axis=-1)) ** 2
    return np.log(np.maximum(power @ _filters(rate, size, bands), _FLOOR)).astype(np.float32)


@functools.cache
def _filters(rate: int, size: int, bands: int) -> np.ndarray:
    """float64 [size // 2 + 1, bands]: triangles over mels, whose corners are even from 20 Hz to half of the rate."""
    low, high = _mels(np.array([_LOWEST, rate / 2]))
    corners = np.linspace(low, high, bands + 2)
    mels = _mels(np.arange(size // 2 + 1) * (rate / size))[:, None]
    rise = (mels - corners[:-2]) / (corners[1:-1] - corners[:-2])
    fall = (corners[2:] - mels) / (corners[2:] - corners[1:-1])
    return np.maximum(0, np.minimum(rise, fall))


def _mels(frequencies: np.ndarray) -> np.ndarray:
    """Hz -> mels of HTK's scale."""
    return 1127 * np.log1p(frequencies / 700)
