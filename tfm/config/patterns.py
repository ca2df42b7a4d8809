"""The catalogue of patterns: which keys a query of softmax attention may see, beside padding and causality."""

from dataclasses import dataclass
from typing import Literal

from tfm.config.choices import Options, check_fields, check_maximum, check_minimum, tag


@dataclass(frozen=True)
class Full(Options):
    """Every key."""

    name: Literal["full"] = tag("full")


@dataclass(frozen=True)
class Sliding(Options):
    """A sliding window (Beltagy et al. 2020, section 3.1).

    window: a decoder's token sees itself and the window - 1 tokens before it, an encoder's window / 2 on either side
    """

    name: Literal["sliding"] = tag("sliding")
    window: int = 128

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, window=1)
        check_maximum(self, "no text is as long", window=1 << 30)


Pattern = Full | Sliding
