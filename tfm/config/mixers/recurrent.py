"""The catalogue of recurrent mixers: a state of constant size reads a text token by token."""

from dataclasses import dataclass
from typing import Literal

from tfm.config.choices import Options, check_fields, check_maximum, check_minimum, tag


@dataclass(frozen=True)
class Recurrent(Options):
    """Abstract: a state that reads a text token by token."""

    size: int | None = None
    bidirectional: bool = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, size=1)
        check_maximum(self, "no model is as large", size=1 << 20)


@dataclass(frozen=True)
class Gru(Recurrent):
    """Gated recurrent units (Cho et al. 2014).

    size: units; none: the width of the model
    bidirectional: as many units read from right to left, for encoders (Schuster & Paliwal 1997)
    """

    name: Literal["gru"] = tag("gru")


@dataclass(frozen=True)
class Lstm(Recurrent):
    """Long short-term memory (Hochreiter & Schmidhuber 1997), with forget gates (Gers et al. 2000).

    size: units; none: the width of the model
    bidirectional: as many units read from right to left, for encoders (Schuster & Paliwal 1997)
    """

    name: Literal["lstm"] = tag("lstm")
