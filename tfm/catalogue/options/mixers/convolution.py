"""Mixers that read a window of tokens by a depth-wise convolution."""

from dataclasses import dataclass
from typing import Literal

from tfm.options.choices import Options, check_fields, check_maximum, check_minimum, tag


@dataclass(frozen=True)
class ConvolutionOptions(Options):
    """Abstract: a convolution over a window of tokens."""

    window: int = 15

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, window=1)
        check_maximum(self, "a window costs time for each of its tokens", window=1024)


@dataclass(frozen=True)
class LightConv(ConvolutionOptions):
    """A convolution whose kernels are softmax-normalized and shared by the channels of a head (Wu et al. 2019).

    window: tokens that a kernel reads; a decoder's are the token and those before it
    """

    name: Literal["lightconv"] = tag("lightconv")


@dataclass(frozen=True)
class DynamicConv(ConvolutionOptions):
    """A convolution whose kernels each token computes for itself (Wu et al. 2019).

    window: tokens that a kernel reads; a decoder's are the token and those before it
    """

    name: Literal["dynamicconv"] = tag("dynamicconv")
