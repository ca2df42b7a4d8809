"""The keys that a query of softmax attention may see, beside padding and causality."""

from typing import ClassVar, Literal

from tfm.catalogue.options.patterns import (
    BigBird,
    Etc,
    Fixed,
    Global,
    Neighbourhood,
    Sliding,
    Strided,
    Transient,
    Windows,
)
from tfm.options.choices import Options, frozen, tag
from tfm.options.slots import check_lengths


@frozen
class Full(Options):
    """Every key."""

    name: Literal["full"] = tag("full")
    reads_segments: ClassVar[bool] = True

    def within(self, tokens: int) -> "Sliding":
        return Sliding(window=tokens + 1)


@frozen
class Local(Options):
    """Blocks, each of which sees itself alone (Liu et al. 2018, section 4.2.4).

    block: tokens of a block; the last one may have fewer
    neighbours: blocks before it, and for an encoder after it, that a block sees too
    """

    name: Literal["local"] = tag("local")
    block: int = 256
    neighbours: int = 0

    def __post_init__(self):
        check_lengths(self, "block", zero=("neighbours",))


Pattern = Full | Local | Sliding | Strided | Fixed | Global | Etc | Transient | BigBird | Windows | Neighbourhood
