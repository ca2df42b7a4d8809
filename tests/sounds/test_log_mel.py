"""Spectrograms against their definition, term by term, and against transformers."""

import cmath
import math

import numpy as np
import pytest

from train.sounds.log_mel import log_mel, mel_filters


def mels(frequency):
    return frequency * 3 / 200 if frequency < 1000 else 15 + 27 * math.log(frequency / 1000) / math.log(6.4)


def hertz(mel):
    return mel * 200 / 3 if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)


def defined(samples, rate, window, hop, bands):
    """Sums over samples, frequencies and bands."""
    corners = [hertz(mels(rate / 2) * n / (bands + 1)) for n in range(bands + 2)]
    last, rows = len(samples) - 1, []
    for frame in range(len(samples) // hop):
        powers = []
        for bin_ in range(window // 2 + 1):
            total = 0j
            for n in range(window):
                place = abs(frame * hop + n - window // 2)
                place = place if place <= last else 2 * last - place
                hann = 0.5 - 0.5 * math.cos(2 * math.pi * n / window)
                total += hann * samples[place] * cmath.exp(-2j * math.pi * bin_ * n / window)
            powers.append(abs(total) ** 2)
        row = []
        for low, top, high in zip(corners, corners[1:], corners[2:], strict=False):
            value = 0.0
            for bin_, power in enumerate(powers):
                frequency = bin_ * rate / window
                height = min((frequency - low) / (top - low), (high - frequency) / (high - top))
                value += max(0.0, height) * 2 / (high - low) * power
            row.append(math.log10(max(value, 1e-10)))
        rows.append(row)
    values = np.array(rows)
    return (np.maximum(values, values.max() - 8) + 4) / 4


def test_log_mel_is_its_definition():
    samples = np.random.default_rng(0).normal(size=75)
    samples[40:] *= 1e-6  # what is far below the loudest band
    expected = defined(samples, 8000, 32, 10, 6)
    actual = log_mel(samples, 8000, 32, 10, 6)
    assert actual.shape == (7, 6)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_a_tone_is_loudest_in_its_band():
    time = np.arange(16_000) / 16_000
    filters = mel_filters(16_000, 400, 40)
    for frequency in (440, 1000, 3000):
        loudest = log_mel(np.sin(2 * np.pi * frequency * time), 16_000, 400, 160, 40)[50].argmax()
        assert loudest == filters[round(frequency / 40)].argmax()


@pytest.mark.parity
@pytest.mark.parametrize("bands", [80, 128])
def test_log_mel_is_that_of_transformers(bands):
    from transformers import WhisperFeatureExtractor

    samples = np.random.default_rng(0).normal(size=16_000 * 3).astype(np.float32)
    extractor = WhisperFeatureExtractor(feature_size=bands)
    expected = extractor(samples, sampling_rate=16_000, return_tensors="np").input_features[0]
    padded = np.zeros(480_000, np.float32)
    padded[: len(samples)] = samples
    np.testing.assert_allclose(log_mel(padded, 16_000, 400, 160, bands), expected.T, atol=1e-4)
