"""Scalings of rotary positions, for texts that are longer than those of training."""

import math
from typing import ClassVar, Literal

from tfm.options.choices import MAX_LENGTH, Options, check_fields, check_maximum, check_minimum, check_type, frozen, tag


class ScalingOptions(Options):
    """Options of one scaling.

    depends_on_length: wavelengths are those of the length of a pass
    """

    depends_on_length: ClassVar[bool] = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, factor=1)

    @property
    def attention_scaling(self) -> float:
        """What rotated queries, and rotated keys, are multiplied by."""
        return 1.0

    def check_pairs(self, pairs: int, head_size: int) -> None:
        """Raises ValueError where the options do not fit the pairs of elements that are rotated."""


def _check_length(options: "Dynamic | Yarn | LongRope | Llama3", minimum: int = 1) -> None:
    """Raises ValueError for an original length that no text has."""
    check_minimum(options, original_length=minimum)
    check_maximum(options, "no text is as long", original_length=MAX_LENGTH)


@frozen
class LinearScaling(ScalingOptions):
    """All wavelengths grow by a factor (Chen et al. 2023, eq. 4).

    factor: texts are that much longer than those of training
    """

    name: Literal["linear"] = tag("linear")
    factor: float = 4.0


@frozen
class Dynamic(ScalingOptions):
    """The base of the wavelengths grows with the length of the text (NTK-aware: Peng et al. 2023, section 3.3).

    The length is static: the tokens of a row, padding too, or the slots of a decode cache. So a jitted function has one
    base for each shape, and all tokens of a generation have that of its longest text. Up to the original length the
    base does not grow.

    factor: how fast the base grows
    original_length: of the texts of training
    """

    name: Literal["dynamic"] = tag("dynamic")
    depends_on_length: ClassVar[bool] = True
    factor: float = 4.0
    original_length: int = 512

    def __post_init__(self):
        super().__post_init__()
        _check_length(self)

    def check_pairs(self, pairs: int, head_size: int) -> None:
        if pairs == 1:
            raise ValueError("position.scaling=dynamic needs two pairs of elements that turn; try larger heads")


@frozen
class Yarn(ScalingOptions):
    """Wavelengths that fit into a text rarely grow, those that fit often do not (Peng et al. 2023, section 3.4).

    factor: texts are that much longer than those of training
    original_length: of the texts of training
    beta_fast: wavelengths that fit into an original text so often do not grow
    beta_slow: wavelengths that fit so often or less grow in full, those between the two in part
    attention_factor: of rotated queries and keys; none: 0.1 ln(factor) + 1
    truncate: pairs that begin and end the range between the two are whole numbers
    """

    name: Literal["yarn"] = tag("yarn")
    factor: float = 4.0
    original_length: int = 512
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float | None = None
    truncate: bool = True

    def __post_init__(self):
        super().__post_init__()
        _check_length(self)
        check_minimum(self, attention_factor=0)
        if not 0 < self.beta_slow < self.beta_fast:
            raise ValueError(f"beta_slow={self.beta_slow} must be above 0 and less than beta_fast={self.beta_fast}")

    @property
    def attention_scaling(self) -> float:
        """The root of the inverse temperature of the softmax."""
        return 0.1 * math.log(self.factor) + 1 if self.attention_factor is None else self.attention_factor


@frozen
class LongRope(ScalingOptions):
    """The wavelength of each pair grows by a factor of its own (Ding et al. 2024, section 3; Phi-3).

    Texts up to the original length have the short factors, longer ones the long factors. The length is static: the
    tokens of a row, padding too, or the slots of a decode cache.

    factor: texts are that much longer than those of training
    original_length: of the texts of training
    short_factors: for each pair of elements that turns, joined by commas, such as 1,1.02,1.5; one stands for all
    long_factors: the same for texts behind the original length
    attention_factor: of rotated queries and keys; none: sqrt(1 + ln(factor) / ln(original_length))
    """

    name: Literal["longrope"] = tag("longrope")
    depends_on_length: ClassVar[bool] = True
    factor: float = 4.0
    original_length: int = 512
    short_factors: str = "1"
    long_factors: str = "4"
    attention_factor: float | None = None

    def __post_init__(self):
        super().__post_init__()
        _check_length(self, minimum=2)
        check_minimum(self, attention_factor=0)
        for name in ("short_factors", "long_factors"):
            text = ",".join(map(_text, self._numbers(name)))
            object.__setattr__(self, name, text)  # equal numbers are equal options

    @property
    def attention_scaling(self) -> float:
        """More for longer texts, whose attention is spread over more keys."""
        if self.attention_factor is not None:
            return self.attention_factor
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_length))

    def factors(self, length: int, pairs: int) -> list[float]:
        """The factor of each pair of elements in texts of a length."""
        numbers = self._numbers("long_factors" if length > self.original_length else "short_factors")
        return numbers * pairs if len(numbers) == 1 else numbers

    def check_pairs(self, pairs: int, head_size: int) -> None:
        for name in ("short_factors", "long_factors"):
            count = len(self._numbers(name))
            if count not in (1, pairs):
                raise ValueError(
                    f"position.scaling.{name}={getattr(self, name)} are {count} factors for {pairs} pairs of "
                    f"head_size={head_size}; give {pairs} or 1"
                )

    def _numbers(self, name: str) -> list[float]:
        """The numbers of a text, one where all are equal. Raises ValueError for anything else."""
        text = getattr(self, name)
        try:
            numbers = [check_type(name, float(word), float) for word in text.split(",")]
        except ValueError:
            numbers = []
        if min(numbers, default=0.0) <= 0:
            raise ValueError(f"{name}={text} must be numbers above 0, joined by commas, such as 1,1.02,1.5")
        return numbers if len(set(numbers)) > 1 else numbers[:1]


def _text(factor: float) -> str:
    """The shortest text of a factor."""
    return repr(factor).removesuffix(".0")


@frozen
class Llama3(ScalingOptions):
    """Long wavelengths grow by a factor, short ones do not (Grattafiori et al. 2024, section 3.4.2).

    factor: texts are that much longer than those of training
    original_length: of the texts of training
    low_freq_factor: wavelengths that fit into an original text so often or less grow in full
    high_freq_factor: wavelengths that fit so often do not grow, those between the two in part
    """

    name: Literal["llama3"] = tag("llama3")
    factor: float = 8.0
    original_length: int = 512
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def __post_init__(self):
        super().__post_init__()
        _check_length(self)
        low, high = self.low_freq_factor, self.high_freq_factor
        if not 0 < low < high:
            raise ValueError(f"low_freq_factor={low} must be above 0 and less than high_freq_factor={high}")


Scaling = LinearScaling | Dynamic | Yarn | LongRope | Llama3
