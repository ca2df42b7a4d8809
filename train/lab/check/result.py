"""What a probe answers."""

import math
from typing import NamedTuple


class Result(NamedTuple):
    """A number that was measured, the most that it may be, and in a few words what it stands for.

    A probe that asks for something that the run does not have has no number, and `detail` says why.
    """

    measured: float | None
    tolerance: float | None
    detail: str

    @property
    def status(self) -> str:
        """pass | fail | not applicable; what is not a number fails."""
        if self.measured is None or self.tolerance is None:
            return "not applicable"
        return "pass" if self.measured <= self.tolerance else "fail"


def not_applicable(reason: str) -> Result:
    """The result of a probe that asks for something that the run does not have."""
    return Result(None, None, reason)


def relative(difference: float, scale: float) -> float:
    """A difference in parts of a scale; infinity for a scale that is 0 or not finite."""
    return float(difference / scale) if scale > 0 and math.isfinite(scale) else math.inf
