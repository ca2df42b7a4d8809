"""The processor of sounds: samples -> the frames that a model reads. A run folder keeps it as transformers does."""

import dataclasses
import json
import warnings
from collections.abc import Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from tfm.options.choices import Range, check_object
from tfm.options.json_text import read_object
from tfm.options.slots import InputOptions
from train import UserError
from train.data.processors import ProcessorKind, read_folder
from train.sounds.fbank import fbank
from train.sounds.log_mel import log_mel

if TYPE_CHECKING:
    from tfm.config.model import Config
    from train.settings.schema import Run
    from train.text.hf_tokenizer import MarksTexts

FILE = "preprocessor_config.json"

# The rate of Whisper's sounds: transformers has bands up to half of it, whatever the rate is.
HF_RATE = 16_000

_KIND, _KALDI = "WhisperFeatureExtractor", "ASTFeatureExtractor"

# The fields that are read, and what they are where a file says nothing.
_DEFAULTS = {"sampling_rate": 16_000, "n_fft": 400, "hop_length": 160, "feature_size": 80}
_SECONDS = 30.0

# Those of Kaldi's filter banks. The class has no field for windows: a run folder says theirs as Whisper's file does.
_KALDI_DEFAULTS = {"sampling_rate": 16_000, "n_fft": 400, "hop_length": 160, "num_mel_bins": 128, "max_length": 1024}

# Mean and deviation of the logarithms, over the sounds of AudioSet; those that change no number.
AUDIOSET, _UNCHANGED = (-4.2677393, 4.5689974), (0.0, 0.5)

# What changes no frame of Kaldi's here.
_KALDI_UNREAD = {"feature_size", "padding_side", "padding_value"}

# The one value of fields that would make other frames.
_ALLOWED = {"padding_side": "right", "padding_value": 0.0, "dither": 0.0}

# What changes no frame here, and why.
IGNORED = {
    "feature_extractor_type": "it is the class, whose name is asked first",
    "do_normalize": "transformers reads it of a call, and never of a file",
    "return_attention_mask": "Whisper reads frames without a mask",
    "mel_filters": "they follow from the sizes",
    **dict.fromkeys(("processor_class", "return_tensors", "device"), "it says how transformers runs a processor"),
}


@dataclasses.dataclass(frozen=True)
class SoundProcessor:
    """Samples a second, those of a window, those from a window to the next; bands, and frames that a model reads;
    mean and deviation of Kaldi's filter banks, or None where frames are scaled as Whisper's.

    Raises ValueError where an input is shorter than half a window, beyond whose ends nothing could be mirrored.
    """

    rate: int
    window: int
    hop: int
    bands: int
    size: int
    statistics: tuple[float, float] | None = None

    def __post_init__(self):
        if min(self.rate, self.window, self.hop, self.bands, self.size) < 1:
            raise ValueError(f"{self} must have sizes of at least 1")
        if self.statistics is not None and not (np.isfinite(self.statistics).all() and self.statistics[1] > 0):
            raise ValueError(f"mean={self.statistics[0]} must be finite, and std={self.statistics[1]} more than 0")
        if self.samples <= self.window // 2:
            raise ValueError(
                f"{self.size} frames of {self.hop} samples are less than half a window of {self.window}; say more "
                "frames, or a smaller window"
            )

    @property
    def samples(self) -> int:
        """The samples that a model reads."""
        return self.size * self.hop if self.statistics is None else (self.size - 1) * self.hop + self.window

    def frame_count(self, samples: int) -> int:
        """The frames of a sound of this many samples, as far as the model reads it."""
        if self.statistics is None:
            return min(self.size, -(-samples // self.hop))
        return min(self.size, max(0, (samples - self.window) // self.hop + 1))

    def frames(self, samples: np.ndarray) -> np.ndarray:
        """samples float32 [N] -> float32 [T,C]: with silence behind the end of a sound; a longer one loses its end.

        Behind the last of Kaldi's frames are zeros, and (x - mean) / (2 std) is taken of all.
        """
        if self.statistics is not None:
            frames, count = np.zeros((self.size, self.bands), np.float32), self.frame_count(len(samples))
            if count:
                read = samples[: self.samples]
                frames[:count] = fbank(read, self.rate, self.window, self.hop, self.bands)
            return ((frames - self.statistics[0]) / (2 * self.statistics[1])).astype(np.float32)
        padded = np.zeros(self.samples, np.float32)
        padded[: len(samples)] = samples[: self.samples]
        return log_mel(padded, self.rate, self.window, self.hop, self.bands)


def _to_texts(processor: SoundProcessor) -> tuple[str, ...]:
    statistics = processor.statistics
    fields = _whisper_fields(processor) if statistics is None else _kaldi_fields(processor, *statistics)
    return (json.dumps(fields, indent=2, sort_keys=True) + "\n",)


def _kaldi_fields(processor: SoundProcessor, mean: float, std: float) -> dict[str, object]:
    return {
        "feature_extractor_type": _KALDI,
        "feature_size": 1,
        "sampling_rate": processor.rate,
        "n_fft": processor.window,
        "hop_length": processor.hop,
        "num_mel_bins": processor.bands,
        "max_length": processor.size,
        "do_normalize": True,
        "mean": mean,
        "std": std,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }


def _whisper_fields(processor: SoundProcessor) -> dict[str, object]:
    seconds = processor.samples / processor.rate
    return {
        "feature_extractor_type": _KIND,
        "feature_size": processor.bands,
        "sampling_rate": processor.rate,
        "n_fft": processor.window,
        "hop_length": processor.hop,
        "chunk_length": seconds
        if processor.samples % processor.rate
        else int(seconds),  # transformers wants whole ones
        "n_samples": processor.samples,
        "nb_max_frames": processor.size,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }


def _of_fields(fields: Mapping[str, object]) -> SoundProcessor:
    """The processor of a file. Raises ValueError for one of pictures or of other features, for fields that contradict
    each other, and for those that it cannot follow; warns of fields that change nothing here."""
    if fields.get("feature_extractor_type") == _KALDI:
        return _of_kaldi(fields)
    if fields.get("feature_extractor_type") != _KIND:
        raise ValueError(f"feature_extractor_type={fields.get('feature_extractor_type')} is not {_KIND} or {_KALDI}")
    for name, value in _ALLOWED.items():
        if fields.get(name, value) != value:
            raise ValueError(f"{name}={fields[name]!r} is not supported; {value!r} is")
    sizes = _DEFAULTS | check_object("", fields, dict.fromkeys(_DEFAULTS, int))
    seconds = check_object("", fields, {"chunk_length": Annotated[float, Range(1e-6, 1 << 20)]})
    rate, window, hop, bands = sizes.values()
    samples = round(seconds.get("chunk_length", _SECONDS) * rate)
    derived = {"n_samples": samples, "nb_max_frames": samples // max(1, hop)}
    parts = f"chunk_length={seconds.get('chunk_length', _SECONDS):g}, sampling_rate={rate}, hop_length={hop}"
    if samples % max(1, hop):
        raise ValueError(f"{parts}: {samples:,} samples must be a multiple of the hop; correct one of them")
    for name, value in derived.items():
        if fields.get(name, value) != value:
            raise ValueError(f"{name}={fields[name]!r} and {parts}, which make it {value}; correct one of them")
    _warn_of(fields.keys() - sizes.keys() - derived.keys() - _ALLOWED.keys() - {"chunk_length"})
    return SoundProcessor(rate, window, hop, bands, derived["nb_max_frames"])


def _of_kaldi(fields: Mapping[str, object]) -> SoundProcessor:
    """The processor of a file of Kaldi's filter banks. Raises ValueError for fields of another type or range."""
    sizes = _KALDI_DEFAULTS | check_object("", fields, dict.fromkeys(_KALDI_DEFAULTS, int))
    rate, window, hop, bands, frames = sizes.values()
    normal = check_object("", fields, {"do_normalize": bool, "mean": float, "std": float})
    _warn_of(fields.keys() - sizes.keys() - {"do_normalize", "mean", "std"} - _KALDI_UNREAD)
    statistics = float(normal.get("mean", AUDIOSET[0])), float(normal.get("std", AUDIOSET[1]))
    return SoundProcessor(
        rate, window, hop, bands, frames, statistics if normal.get("do_normalize", True) else _UNCHANGED
    )


def _warn_of(names: Set[str]) -> None:
    """Warns of fields that change nothing here, and of which nothing is known."""
    unknown = sorted(names - IGNORED.keys())
    if unknown:
        warnings.warn(f"the processor has {', '.join(unknown)}, which change nothing here", stacklevel=3)


def _read_hf(folder: Path, model: "Config") -> SoundProcessor:
    processor = read_folder(folder, "feature_extractor", _of_fields)
    _refuse_other_frames(processor, f"{folder}: sampling_rate={processor.rate}, n_fft={processor.window}")
    required = model.in_encoder().input.array_shape
    if required not in (None, (processor.size, processor.bands)):
        whisper = "max_source_positions and num_mel_bins", "chunk_length and feature_size"
        names, own_names = whisper if processor.statistics is None else ("max_length and num_mel_bins",) * 2
        raise UserError(
            f"{folder}: the model reads {required[0]} frames of {required[1]} bands ({names} of config.json), and the "
            f"processor makes {processor.size} of {processor.bands} ({own_names}); correct one of them"
        )
    return processor


def _refuse_other_frames(processor: SoundProcessor, where: str) -> None:
    """Raises UserError for sizes of which transformers makes other frames than are read here."""
    if processor.rate != HF_RATE:
        raise UserError(
            f"{where}: transformers has bands of mels up to {HF_RATE // 2:,} Hz, whatever the rate is, and those of a "
            f"model of {processor.rate:,} samples a second are others here; it must be {HF_RATE}"
        )
    windows = processor.window, processor.hop
    if processor.statistics is not None and windows != (_KALDI_DEFAULTS["n_fft"], _KALDI_DEFAULTS["hop_length"]):
        raise UserError(
            f"{where}: transformers makes frames of {_KALDI} of 400 samples, at every 160th one, and those of "
            f"{processor.window} at every {processor.hop}th one are others; take window=400 and hop=160"
        )
    if processor.window % 2:
        raise UserError(f"{where}: transformers leaves the last frame out where the window is odd; make it even")


def _save_hf(processor: SoundProcessor, task: "MarksTexts", run: "Run", folder: Path) -> None:
    _refuse_other_frames(processor, f"--task.sound.rate={processor.rate} --task.sound.window={processor.window}")
    if processor.statistics is None and processor.samples % processor.rate:
        warnings.warn(
            f"{processor.samples:,} samples are no whole seconds at {processor.rate:,} a second, and transformers "
            "makes frames of whole seconds alone: its processor will not run; train on as many frames as fill seconds",
            stacklevel=2,
        )
    (folder / FILE).write_text(_to_texts(processor)[0])


SOUND_PROCESSOR: ProcessorKind[SoundProcessor] = ProcessorKind(
    (FILE,), _to_texts, lambda path: _of_fields(read_object(path)), _read_hf, _save_hf
)


def run_processor(run: "Run", options: InputOptions, saved: SoundProcessor | None) -> SoundProcessor:
    """The processor of a run for what an input of frames reads: a new one, or the `saved` one of another run.

    Raises UserError for a processor of other sizes than the model reads.
    """
    size, bands = options.array_shape or ()
    try:
        sound = run.task.sound
        statistics = AUDIOSET if sound.features == "kaldi" else None
        processor = saved or SoundProcessor(sound.rate, sound.window, sound.hop, bands, size, statistics)
    except ValueError as error:
        raise UserError(f"--task.sound: {error}") from error
    if not isinstance(processor, SoundProcessor) or (processor.size, processor.bands) != (size, bands):
        raise UserError(
            f"the model reads {size} frames of {bands} bands, and the processor of --init makes {processor}; name a "
            "run of sounds, and leave the sizes of its frames out"
        )
    return processor
