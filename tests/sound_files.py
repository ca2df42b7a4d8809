"""Writes .wav files."""

import wave

import numpy as np


def write(path, samples, rate=16_000, width=2, channels=1):
    """A .wav file of numbers between -1 and 1 [N] or [N,channels]."""
    numbers = np.clip(np.rint(np.asarray(samples, np.float64) * 2 ** (8 * width - 1)), *limits(width)).astype("<i4")
    content = (numbers + 128).astype(np.uint8).tobytes() if width == 1 else numbers.tobytes()
    if width in (2, 3):
        content = np.frombuffer(content, np.uint8).reshape(-1, 4)[:, :width].tobytes()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(content)


def limits(width):
    return -(2 ** (8 * width - 1)), 2 ** (8 * width - 1) - 1
