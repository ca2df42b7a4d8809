"""Sounds in files: .wav by Python's own library; .flac, .ogg and others where soundfile is installed."""

import importlib.util
import wave
from pathlib import Path
from typing import NamedTuple

import numpy as np

from train import UserError

# Names of sounds end so.
ENDINGS = (".wav", ".flac", ".ogg", ".mp3")


class Header(NamedTuple):
    """Samples a second, and samples of every channel."""

    rate: int
    samples: int


def header(path: str) -> Header:
    """What a file says of its sound. Raises UserError for a file that is none, and for one without a sample."""
    sound = _read(path, 0)[0]
    if sound.samples < 1:
        raise UserError(f"{path} holds no sample; leave it out")
    return sound


def read(path: str, limit: int) -> np.ndarray:
    """The first `limit` samples of a file, float32 [N] between -1 and 1, a mean over its channels. Raises UserError."""
    return _read(path, limit)[1]


def _read(path: str, limit: int) -> tuple[Header, np.ndarray]:
    if importlib.util.find_spec("soundfile"):
        return _read_any(path, limit)
    if Path(path).suffix.lower() != ".wav":
        raise UserError(f"{path} is no .wav file, and other sounds need soundfile; install tfm[sound], or convert it")
    try:
        with wave.open(path, "rb") as file:
            channels, width, rate, samples = file.getparams()[:4]
            content = file.readframes(min(limit, samples))
    except (wave.Error, EOFError, OSError) as error:
        raise UserError(f"{path} is no whole .wav file of whole numbers ({error}); convert it") from error
    values = _numbers(content, width)
    return Header(rate, samples), values[: len(values) // channels * channels].reshape(-1, channels).mean(1)


def _numbers(content: bytes, width: int) -> np.ndarray:
    """Whole numbers of 1 to 4 bytes -> float32 between -1 and 1; those of one byte are not negative."""
    if width == 1:
        return (np.frombuffer(content, np.uint8).astype(np.float32) - 128) / 128
    count = len(content) // width
    parts = np.frombuffer(content, np.uint8, count * width).reshape(count, width)
    filled = np.zeros((count, 4), np.uint8)
    filled[:, 4 - width :] = parts
    return filled.view("<i4")[:, 0].astype(np.float32) / np.float32(1 << 31)


def _read_any(path: str, limit: int) -> tuple[Header, np.ndarray]:
    """The same by soundfile."""
    import soundfile

    try:
        with soundfile.SoundFile(path) as file:
            sound = Header(file.samplerate, file.frames)
            return sound, file.read(limit, dtype="float32", always_2d=True).mean(1)
    except (soundfile.SoundFileError, OSError) as error:
        raise UserError(f"{path} is no whole sound ({error}); repair it, or leave it out") from error
