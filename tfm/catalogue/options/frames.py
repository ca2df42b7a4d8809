"""Inputs along time: frames of sounds and of other series."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tfm.catalogue.options.inputs import Patches, number_pairs
from tfm.options.choices import check_fields, check_maximum, check_minimum, tag
from tfm.options.model import ModelConfig
from tfm.options.slots import InputOptions


@dataclass(frozen=True)
class Frames(InputOptions):
    """Frames of a sound or of another series, through convolutions along time (Whisper: Radford et al. 2022, section
    2.2).

    Raises ValueError for convolutions that are none.

    size: frames of an input
    channels: numbers of a frame, such as the bands of a spectrogram
    convolutions: WIDTHxSTRIDE of the convolutions, joined by commas; 16x16 alone makes patches of 16 frames
    activation: gelu | none: behind each convolution
    mask_padding: layers do not see frames behind the end of an input
    bias: add a bias in convolutions
    norm: normalize the embeddings
    """

    name: Literal["frames"] = tag("frames")
    reads_packed: ClassVar[bool] = False
    ignores: ClassVar[tuple[str, ...]] = Patches.ignores
    size: int = 3000
    channels: int = 80
    convolutions: str = "3x1,3x2"
    activation: Literal["gelu", "none"] = "gelu"
    mask_padding: bool = True
    bias: bool = True
    norm: bool = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, size=1, channels=1)
        check_maximum(self, "no input is as large", size=1 << 20, channels=1 << 16)
        if not all(0 < width <= 1 << 12 and 0 < stride <= width for width, stride in self.layers or [(0, 0)]):
            raise ValueError(
                f"convolutions={self.convolutions} must be WIDTHxSTRIDE, joined by commas, with strides of at most the "
                "width, such as 3x1,3x2"
            )

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """Width and stride of the convolutions; none where the text does not say them."""
        return number_pairs(self.convolutions)

    @property
    def array_shape(self) -> tuple[int, ...] | None:
        return self.size, self.channels

    def max_length(self, config: ModelConfig) -> int:
        length = self.size
        for _, stride in self.layers:
            length = -(-length // stride)
        return length

    def sizes(self, config: ModelConfig) -> dict[str, int]:
        return {"U": config.width, "P": self.max_length(config)}
