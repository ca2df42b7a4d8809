"""The options of train.prune."""

import dataclasses
from typing import Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum


@dataclasses.dataclass(frozen=True)
class PruneOptions:
    """What to prune, and how far.

    run: the run folder, or a Hugging Face folder
    heads: the share of the heads of every layer that stays
    to: the run folder to make, a new or an empty one; by default RUN-headsSHARE
    by: gradient | learned: how much the loss changes with a head, or gates that are trained to close
    batches: training batches that are read; by default 16, or 200 for learned gates
    penalty: of learned gates: what an open gate costs, in the unit of the loss
    data: text to score heads on and to measure with; empty for the run's own
    average: the newest checkpoints whose mean is pruned
    """

    run: str = ""
    heads: float = 0.5
    to: str = ""
    by: Literal["gradient", "learned"] = "gradient"
    batches: int | None = None
    penalty: float = 0.05
    data: str = ""
    average: int = 1

    def __post_init__(self):
        if not self.run:
            raise ValueError("run=RUN must name the folder of a run")
        check_fields(self)
        check_minimum(self, batches=1, penalty=0, average=1)
        check_maximum(self, "no text is as long", batches=1 << 32)
        if not 0 < self.heads < 1:
            raise ValueError(f"heads={self.heads} must be more than 0 and less than 1; 0.5 keeps half of them")
