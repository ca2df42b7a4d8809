"""Mixers that read a window of tokens by a depth-wise convolution."""

from typing import Literal

from tfm.options.choices import Options, check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.model import ModelConfig


@frozen
class ConvolutionOptions(Options):
    """Abstract: a convolution over a window of tokens."""

    window: int = 15

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, window=1)
        check_maximum(self, "a window costs time for each of its tokens", window=1024)


@frozen
class LightConv(ConvolutionOptions):
    """A convolution whose kernels are softmax-normalized and shared by the channels of a head (Wu et al. 2019).

    window: tokens that a kernel reads; a decoder's are the token and those before it
    """

    name: Literal["lightconv"] = tag("lightconv")


@frozen
class DynamicConv(ConvolutionOptions):
    """A convolution whose kernels each token computes for itself (Wu et al. 2019).

    window: tokens that a kernel reads; a decoder's are the token and those before it
    """

    name: Literal["dynamicconv"] = tag("dynamicconv")


@frozen
class TextCnn(Options):
    """Convolutions of all features over windows of several sizes, with a ReLU (Kim 2014); for encoders.

    windows: tokens that filters read; each size has an equal share of the width
    """

    name: Literal["textcnn"] = tag("textcnn")
    windows: str = "3,4,5"

    def __post_init__(self):
        check_fields(self)
        words = self.windows.split(",")
        if not all(word.isdecimal() and 0 < int(word) <= 64 for word in words):
            raise ValueError(f"mixer.windows={self.windows} must be sizes from 1 to 64, such as 3,4,5")

    @property
    def sizes(self) -> list[int]:
        """The tokens of each window."""
        return [*map(int, self.windows.split(","))]

    def check(self, config: ModelConfig) -> None:
        if config.width < len(self.sizes):
            raise ValueError(f"width={config.width} has no filter for each size of mixer.windows={self.windows}")
