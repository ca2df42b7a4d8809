"""The settings of sounds: how they become frames."""

from typing import Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen
from tfm.options.slots import InputOptions


@frozen
class Sound:
    """How a sound becomes frames, for a model of these: a log-mel spectrogram with as many bands as frames have
    channels.

    features: whisper | kaldi: how it is scaled: by its loudest band (Radford et al. 2022, section 2.2); or Kaldi's
        filter banks by the mean and the deviation of AudioSet (AST: Gong et al. 2021, section 2.1)
    rate: samples a second
    window: samples of which a frame is the spectrum
    hop: samples from a frame to the next one
    """

    features: Literal["whisper", "kaldi"] = "whisper"
    rate: int = 16_000
    window: int = 400
    hop: int = 160

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, rate=1000, window=16, hop=1)
        check_maximum(self, "no sound is as fine", rate=1 << 20, window=1 << 16, hop=1 << 16)


def reads_frames(options: InputOptions) -> bool:
    """Whether an input reads frames, arrays [T,C]."""
    return len(options.array_shape or ()) == 2
