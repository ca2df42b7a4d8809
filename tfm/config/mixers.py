"""The catalogue of mixers: how the tokens of a text learn of each other."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tfm.config.choices import Options, check_fields, check_maximum, check_minimum, tag
from tfm.config.patterns import Full, Pattern


@dataclass(frozen=True)
class Softmax(Options):
    """Softmax attention (Vaswani et al. 2017, eq. 1).

    pattern: the keys that a query may see
    qk_norm: normalize the queries and keys of each head (Henry et al. 2020)
    """

    name: Literal["softmax"] = tag("softmax")
    pattern: Pattern = Full()
    qk_norm: bool = False


@dataclass(frozen=True)
class Linformer(Options):
    """Keys and values are projected along the length, so that scores are [T, rank] (Wang et al. 2020); for encoders.

    rank: rows that are left of the length
    share: one projection for keys and values
    """

    name: Literal["linformer"] = tag("linformer")
    reads_packed: ClassVar[bool] = False
    rank: int = 64
    share: bool = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, rank=1)
        check_maximum(self, "no text is as long", rank=1 << 24)

    def max_length(self, config: Any) -> int | None:  # noqa: D102
        return config.length


@dataclass(frozen=True)
class Performer(Options):
    """Softmax attention by positive random features, in time linear in the length (Choromanski et al. 2021).

    features: random features of a head
    chunk: tokens whose products are computed at once, where tokens do not see all others
    """

    name: Literal["performer"] = tag("performer")
    features: int = 64
    chunk: int = 64

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, features=1, chunk=1)
        check_maximum(self, "no model is as large", features=1 << 20, chunk=1 << 24)


Mixer = Softmax | Linformer | Performer
