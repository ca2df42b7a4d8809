"""The catalogue of mixers whose weights do not depend on the tokens."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from tfm.config.choices import Options, tag


@dataclass(frozen=True)
class FNet(Options):
    """The real part of a Fourier transform along the text and the width, without parameters (Lee-Thorp et al. 2021);
    for encoders.

    A text in a longer row is another signal: padding counts as zeros, and changes what the tokens become.
    """

    name: Literal["fnet"] = tag("fnet")
    reads_packed: ClassVar[bool] = False
