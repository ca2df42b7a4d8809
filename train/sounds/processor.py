"""The processor of sounds: samples -> the frames that a model reads. A run folder keeps it as transformers does."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tfm.options.choices import check_object
from tfm.options.json_text import read_object
from tfm.options.slots import InputOptions
from train import UserError
from train.data.processors import ProcessorKind
from train.sounds.log_mel import log_mel

if TYPE_CHECKING:
    from tfm.config.model import Config
    from train.settings.schema import Run
    from train.text.hf_tokenizer import MarksTexts

FILE = "preprocessor_config.json"

# The rate of Whisper's sounds: transformers has bands up to half of it, whatever the rate is.
HF_RATE = 16_000

_KIND = "WhisperFeatureExtractor"


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
    fields = {
        "feature_extractor_type": _KIND,
        "feature_size": processor.bands,
        "sampling_rate": processor.rate,
        "n_fft": processor.window,
        "hop_length": processor.hop,
        "chunk_length": processor.samples / processor.rate,
        "n_samples": processor.samples,
        "nb_max_frames": processor.size,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }
    return (json.dumps(fields, indent=2, sort_keys=True) + "\n",)


def _read(path: Path) -> SoundProcessor:
    """The processor of a file. Raises ValueError for a damaged one, and for one of pictures or of other features."""
    fields = read_object(path)
    if fields.get("feature_extractor_type") != _KIND:
        raise ValueError(f"{path} has feature_extractor_type={fields.get('feature_extractor_type')}, not {_KIND}")
    sizes = {"sampling_rate": 16_000, "n_fft": 400, "hop_length": 160, "feature_size": 80}
    sizes |= check_object(f"{path}: ", fields, dict.fromkeys((*sizes, "nb_max_frames"), int))
    rate, hop = sizes["sampling_rate"], sizes["hop_length"]
    return SoundProcessor(
        rate, sizes["n_fft"], hop, sizes["feature_size"], sizes.get("nb_max_frames", 30 * rate // max(1, hop))
    )


def _read_hf(folder: Path, model: "Config") -> SoundProcessor:
    if not (folder / FILE).is_file():
        raise UserError(f"{folder} has no {FILE}, which says how sounds become frames; add it")
    return _read(folder / FILE)


def _save_hf(processor: SoundProcessor, task: "MarksTexts", run: "Run", folder: Path) -> None:
    if processor.rate != HF_RATE:
        raise UserError(
            f"transformers has bands of mels up to {HF_RATE // 2:,} Hz, and those of a model of {processor.rate:,} "
            f"samples a second are others; train with --task.sound.rate={HF_RATE}"
        )
    (folder / FILE).write_text(_to_texts(processor)[0])


SOUND_PROCESSOR: ProcessorKind[SoundProcessor] = ProcessorKind((FILE,), _to_texts, _read, _read_hf, _save_hf)


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
