"""The catalogue of mixers whose queries see fewer keys than there are tokens."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tfm.config.choices import Options, check_fields, check_maximum, check_minimum, tag


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
