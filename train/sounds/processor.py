"""The processor of sounds: samples -> the frames that a model reads. A run folder keeps it as transformers does."""

import dataclasses
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from tfm.options.choices import Range, check_object
from tfm.options.json_text import read_object
from tfm.options.slots import InputOptions
from train import UserError
from train.data.processors import ProcessorKind, read_folder
from train.sounds.log_mel import log_mel

if TYPE_CHECKING:
    from tfm.config.model import Config
    from train.settings.schema import Run
    from train.text.hf_tokenizer import MarksTexts

FILE = "preprocessor_config.json"

# The rate of Whisper's sounds: transformers has bands up to half of it, whatever the rate is.
HF_RATE = 16_000

_KIND = "WhisperFeatureExtractor"

# The fields that are read, and what they are where a file says nothing.
_DEFAULTS = {"sampling_rate": 16_000, "n_fft": 400, "hop_length": 160, "feature_size": 80}
_SECONDS = 30.0

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
    """Samples a second, those of a window, those from a window to the next; bands, and frames that a model reads.

    Raises ValueError where an input is shorter than half a window, beyond whose ends nothing could be mirrored.
    """

    rate: int
    window: int
    hop: int
    bands: int
    size: int

    def __post_init__(self):
        if min(dataclasses.astuple(self)) < 1:
            raise ValueError(f"{self} must have sizes of at least 1")
        if self.samples <= self.window // 2:
            raise ValueError(
                f"{self.size} frames of {self.hop} samples are less than half a window of {self.window}; say more "
                "frames, or a smaller window"
            )

    @property
    def samples(self) -> int:
        """The samples that a model reads."""
        return self.size * self.hop

    def frame_count(self, samples: int) -> int:
        """The frames of a sound of this many samples, as far as the model reads it."""
        return min(self.size, -(-samples // self.hop))

    def frames(self, samples: np.ndarray) -> np.ndarray:
        """samples float32 [N] -> float32 [T,C]: with silence behind the end of a sound; a longer one loses its end."""
        padded = np.zeros(self.samples, np.float32)
        padded[: len(samples)] = samples[: self.samples]
        return log_mel(padded, self.rate, self.window, self.hop, self.bands)


def _to_texts(processor: SoundProcessor) -> tuple[str, ...]:
    seconds = processor.samples / processor.rate
    fields = {
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
    return (json.dumps(fields, indent=2, sort_keys=True) + "\n",)


def _of_fields(fields: Mapping[str, object]) -> SoundProcessor:
    """The processor of a file. Raises ValueError for one of pictures or of other features, for fields that contradict
    each other, and for those that it cannot follow; warns of fields that change nothing here."""
    if fields.get("feature_extractor_type") != _KIND:
        raise ValueError(f"feature_extractor_type={fields.get('feature_extractor_type')} is not {_KIND}")
    for name, value in _ALLOWED.items():
        if fields.get(name, value) != value:
            raise ValueError(f"{name}={fields[name]!r} is not supported; {value!r} is")
    sizes = _DEFAULTS | check_object("", fields, dict.fromkeys(_DEFAULTS, int))
    seconds = check_object("", fields, {"chunk_length": Annotated[float, Range(1e-6, 1 << 20)]})
    rate, window, hop, bands = sizes.values()
    samples = round(seconds.get("chunk_length", _SECONDS) * rate)
    made = {"n_samples": samples, "nb_max_frames": samples // max(1, hop)}
    parts = f"chunk_length={seconds.get('chunk_length', _SECONDS):g}, sampling_rate={rate}, hop_length={hop}"
    if samples % max(1, hop):
        raise ValueError(f"{parts}: {samples:,} samples must be a multiple of the hop; correct one of them")
    for name, value in made.items():
        if fields.get(name, value) != value:
            raise ValueError(f"{name}={fields[name]!r} and {parts}, which make it {value}; correct one of them")
    unknown = sorted(fields.keys() - sizes.keys() - made.keys() - _ALLOWED.keys() - IGNORED.keys() - {"chunk_length"})
    if unknown:
        warnings.warn(f"the processor has {', '.join(unknown)}, which change nothing here", stacklevel=2)
    return SoundProcessor(rate, window, hop, bands, made["nb_max_frames"])


def _read_hf(folder: Path, model: "Config") -> SoundProcessor:
    processor = read_folder(folder, "feature_extractor", _of_fields)
    _refuse_other_frames(processor, f"{folder}: sampling_rate={processor.rate}, n_fft={processor.window}")
    required = model.in_encoder().input.array_shape
    if required not in (None, (processor.size, processor.bands)):
        raise UserError(
            f"{folder}: the model reads {required[0]} frames of {required[1]} bands (max_source_positions and "
            f"num_mel_bins of config.json), and the processor makes {processor.size} of {processor.bands} "
            "(chunk_length and feature_size); correct one of them"
        )
    return processor


def _refuse_other_frames(processor: SoundProcessor, where: str) -> None:
    """Raises UserError for sizes of which transformers makes other frames than are read here."""
    if processor.rate != HF_RATE:
        raise UserError(
            f"{where}: transformers has bands of mels up to {HF_RATE // 2:,} Hz, whatever the rate is, and those of a "
            f"model of {processor.rate:,} samples a second are others here; it must be {HF_RATE}"
        )
    if processor.window % 2:
        raise UserError(f"{where}: transformers leaves the last frame out where the window is odd; make it even")


def _save_hf(processor: SoundProcessor, task: "MarksTexts", run: "Run", folder: Path) -> None:
    _refuse_other_frames(processor, f"--task.sound.rate={processor.rate} --task.sound.window={processor.window}")
    if processor.samples % processor.rate:
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
        processor = saved or SoundProcessor(sound.rate, sound.window, sound.hop, bands, size)
    except ValueError as error:
        raise UserError(f"--task.sound: {error}") from error
    if not isinstance(processor, SoundProcessor) or (processor.size, processor.bands) != (size, bands):
        raise UserError(
            f"the model reads {size} frames of {bands} bands, and the processor of --init makes {processor}; name a "
            "run of sounds, and leave the sizes of its frames out"
        )
    return processor
