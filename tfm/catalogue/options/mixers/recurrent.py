"""Recurrent mixers: a state of constant size reads a text token by token."""

from dataclasses import replace
from typing import Literal, Self

from tfm.options.choices import Options, check_fields, check_maximum, check_minimum, frozen, tag
from tfm.options.model import ModelConfig


@frozen
class RecurrentOptions(Options):
    """Abstract: a state that reads a text token by token."""

    size: int | None = None
    bidirectional: bool = False
    separate: bool = False
    output: bool = True
    condition: bool = False
    score: Literal["scaled_dot", "dot", "multiplicative", "additive"] = "scaled_dot"

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, size=1)
        check_maximum(self, "no model is as large", size=1 << 20)
        if self.separate and not self.bidirectional:
            raise ValueError("separate=true keeps two directions apart; add bidirectional=true")

    @property
    def directions(self) -> int:
        """1, or 2."""
        return 1 + self.bidirectional

    def units(self, width: int) -> int:
        """Units of a direction in a model of this width."""
        return self.size or (width if self.output else width // self.directions)

    def state_size(self, width: int) -> int:
        """Numbers of a direction that its gates and the next layer read."""
        return self.units(width)

    @property
    def has_projection(self) -> bool:
        """Whether states are a projection of units."""
        return False

    def check(self, config: ModelConfig) -> None:
        if self.separate and config.width % 2:
            raise ValueError(f"width={config.width} must be even for mixer.separate=true")
        size = self.directions * self.state_size(config.width)
        if not self.output and size != config.width:
            raise ValueError(
                f"mixer.output=false makes states the stream, and they are {size}, not width={config.width}; change "
                "mixer.size, or leave out mixer.output"
            )

    def conditioned(self) -> Self:
        """These options in a decoder whose layers also read a vector of another text."""
        size = None if self.size is None or self.output else self.size * self.directions
        return replace(self, size=size, bidirectional=False, separate=False, condition=True)


@frozen
class Gru(RecurrentOptions):
    """Gated recurrent units (Cho et al. 2014).

    size: units of a direction; none: the width of the model, or its share of that with output=false
    bidirectional: as many units read from right to left, for encoders (Schuster & Paliwal 1997)
    separate: each direction reads and returns a half of its own (Peters et al. 2018)
    output: a linear map leads from states to the stream; false: states are the stream
    condition: gates also read a vector of another text (Kiros et al. 2015, eq. 5 to 7)
    score: scaled_dot | dot | multiplicative | additive: of attention to another text, in a translator alone, as that
        of softmax; additive: Bahdanau et al. 2015
    """

    name: Literal["gru"] = tag("gru")


@frozen
class Lstm(RecurrentOptions):
    """Long short-term memory (Hochreiter & Schmidhuber 1997), with forget gates (Gers et al. 2000).

    size: units of a direction; none: the width of the model, or its share of that with output=false
    bidirectional: as many units read from right to left, for encoders (Schuster & Paliwal 1997)
    separate: each direction reads and returns a half of its own (Peters et al. 2018)
    output: a linear map leads from states to the stream; false: states are the stream
    condition: gates also read a vector of another text (Kiros et al. 2015, eq. 5 to 7)
    score: scaled_dot | dot | multiplicative | additive: of attention to another text, in a translator alone, as that
        of softmax; additive: Bahdanau et al. 2015
    projection: size of a projection of the units, which gates and the next layer read (Sak et al. 2014); none: units
    clip: largest size of a cell, and of a number of that projection; none: no limit. ELMo has 3
    """

    name: Literal["lstm"] = tag("lstm")
    projection: int | None = None
    clip: float | None = None

    def __post_init__(self):
        super().__post_init__()
        check_minimum(self, projection=1)
        check_maximum(self, "no model is as large", projection=1 << 20, clip=1e6)
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"clip={self.clip} must be more than 0; for no limit say none")

    @property
    def has_projection(self) -> bool:
        return self.projection is not None

    def state_size(self, width: int) -> int:
        return self.projection or self.units(width)

    def conditioned(self) -> Self:
        projection = None if self.projection is None or self.output else self.projection * self.directions
        return replace(super().conditioned(), projection=projection or self.projection)
