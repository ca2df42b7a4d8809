"""Phases of a run, as a recipe has them."""

from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen
from train.settings.limits import MAX_STEPS, STEPS

# What says the length of a phase.
LENGTHS = ("steps", "tokens", "share")

# Tokens of the longest pre-training are 2^45; products with these stay within 64 bits.
_MAX_TOKENS = 1 << 50


@frozen
class PhaseSettings:
    """A part of a run.

    steps: its steps; none: as many as its tokens or its share need, or all that are left
    tokens: its tokens, in place of steps
    share: its share of --steps, in place of steps
    changes: flags that hold from here on, such as "batch.length=512 task.rate=0.15"
    """

    steps: int | None = None
    tokens: int | None = None
    share: float | None = None
    changes: str = ""

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, steps=1, tokens=1)
        check_maximum(self, STEPS, steps=MAX_STEPS)
        check_maximum(self, "no text is as long", tokens=_MAX_TOKENS)
        if self.share is not None and not 0 < self.share < 1:
            raise ValueError(f"share={self.share} must be more than 0 and less than 1; 0.9 is usual")
        lengths = [f"{name}={value}" for name in LENGTHS if (value := getattr(self, name)) is not None]
        if len(lengths) > 1:
            raise ValueError(f"{' and '.join(lengths)} say a length each; leave all but the first out")
