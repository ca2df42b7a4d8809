"""How often to save where devices fail, and how much longer a run takes for that.

Faults come at random, with the same mean time between them (Young 1974, "A first order approximation to the optimum
checkpoint interval"; Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps"). A
fault loses the work since the last checkpoint. Steps wait here for a checkpoint to be written, which is an upper bound:
a run of `train.main` goes on meanwhile, and a fault then costs the work since the checkpoint before.
"""

import dataclasses
import math
from typing import NamedTuple

_YEAR = 365.25 * 86400


class LongRun(NamedTuple):
    """What is said of a run of days: its tokens, faults of a device in a year, bytes of a checkpoint that are written a
    second, and seconds until it goes on after a fault."""

    tokens: int | None
    fault_rate: float | None
    save_rate: float
    restart: float


@dataclasses.dataclass(frozen=True)
class Faults:
    """What happens to a run; all in seconds.

    between: the mean time between faults of any device
    save: the time that a checkpoint takes
    restart: the time from a fault until steps go on behind the last checkpoint
    """

    between: float
    save: float
    restart: float

    @classmethod
    def of(cls, a_year: float, devices: int, checkpoint_bytes: float, bytes_a_second: float, start: float):
        """Devices of which each has so many faults a year. A checkpoint is written, and read, at the same rate."""
        save = checkpoint_bytes / bytes_a_second
        return cls(_YEAR / (a_year * devices), save, start + save)

    @property
    def interval(self) -> float:
        """The best time from the end of a checkpoint to the beginning of the next (Daly 2006, perturbation)."""
        ratio = self.save / (2 * self.between)
        if ratio >= 1:
            return self.between
        return math.sqrt(2 * self.save * self.between) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - self.save

    def slowdown(self, interval: float) -> float:
        """How many times as long a run takes that saves at this interval (Daly 2006, complete cost function); infinity
        where it never ends."""
        try:
            tries = math.expm1((interval + self.save) / self.between)
            return self.between / interval * math.exp(self.restart / self.between) * tries
        except OverflowError:
            return math.inf
