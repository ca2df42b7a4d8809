"""Log-mel spectrograms (Davis and Mermelstein 1980), scaled as Whisper's are (Radford et al. 2022, section 2.2)."""

import functools

import numpy as np

# Slaney's scale of mels (1998): even up to 1,000 Hz, 15 mels; then 27 mels for each factor of 6.4.
_EVEN, _EVEN_MELS, _FACTOR, _MELS = 1000.0, 15.0, 6.4, 27.0

# The least power, and how far below the loudest band others are kept, in powers of ten.
_FLOOR, _RANGE = 1e-10, 8.0


def log_mel(samples: np.ndarray, rate: int, window: int, hop: int, bands: int) -> np.ndarray:
    """samples float [N], more than half a window of them -> float32 [N // hop, bands].

    The power of Hann windows around every `hop`-th sample, mirrored beyond both ends, in triangular bands of mels; its
    logarithm to base 10, of at least 8 less than the largest one, plus 4, divided by 4.
    """
    padded = np.pad(samples.astype(np.float64), window // 2, mode="reflect")
    pieces = np.lib.stride_tricks.sliding_window_view(padded, window)[::hop][: len(samples) // hop]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    power = np.abs(np.fft.rfft(pieces * hann, axis=-1)) ** 2
    logarithms = np.log10(np.maximum(power @ mel_filters(rate, window, bands), _FLOOR))
    return ((np.maximum(logarithms, logarithms.max() - _RANGE) + 4) / 4).astype(np.float32)


@functools.cache
def mel_filters(rate: int, window: int, bands: int) -> np.ndarray:
    """float64 [window // 2 + 1, bands]: triangles of equal area over frequencies, whose corners are even in mels from 0
    to half of the rate."""
    corners = _frequencies(np.linspace(0, _mels(rate / 2), bands + 2))
    frequencies = np.arange(window // 2 + 1) * (rate / window)
    rise = (frequencies[:, None] - corners[:-2]) / np.diff(corners)[:-1]
    fall = (corners[2:] - frequencies[:, None]) / np.diff(corners)[1:]
    return np.maximum(0, np.minimum(rise, fall)) * (2 / (corners[2:] - corners[:-2]))


def _mels(frequency: float) -> float:
    """Hz -> mels."""
    if frequency < _EVEN:
        return frequency * _EVEN_MELS / _EVEN
    return _EVEN_MELS + _MELS * float(np.log(frequency / _EVEN)) / float(np.log(_FACTOR))


def _frequencies(mels: np.ndarray) -> np.ndarray:
    """Mels -> Hz."""
    return np.where(mels < _EVEN_MELS, mels * _EVEN / _EVEN_MELS, _EVEN * _FACTOR ** ((mels - _EVEN_MELS) / _MELS))
