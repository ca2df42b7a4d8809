"""The catalogue of mixers whose scores are products of features: sums over the text take the place of its keys."""

from dataclasses import dataclass
from typing import Literal

from tfm.config.choices import Options, check_fields, check_maximum, check_minimum, tag


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
