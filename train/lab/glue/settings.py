"""What is tried for every task: learning rates, batch sizes and epochs, and what all runs of a suite share."""

import dataclasses
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from train import UserError
from train.lab.glue.suites import GlueTask

# Rates, batch sizes and epochs. paper: Devlin et al. 2018, appendix A.3. small: the README of google-research/bert for
# the models of Turc et al. 2019.
GRIDS = {
    "paper": ((5e-5, 3e-5, 2e-5), (16, 32), (2.0, 3.0, 4.0)),
    "small": ((3e-4, 1e-4, 5e-5, 3e-5), (8, 16, 32, 64, 128), (4.0,)),
}

# What the command decides itself, and how to choose it.
_OWN = {
    "data.": "leave it out",
    "task.": "leave it out",
    "optim.rate": "use --rate",
    "batch.size": "use --batch",
    "batch.length": "use --length",
}


class Setting(NamedTuple):
    """What a grid varies."""

    rate: float
    batch: int
    epochs: float

    def text(self, steps: int | None) -> str:
        """As tables show it; `steps` replace the epochs."""
        duration = f"epochs {self.epochs:g}" if steps is None else f"steps {steps}"
        return f"rate {self.rate:g}, batch {self.batch}, {duration}"


@dataclasses.dataclass(frozen=True)
class GlueSettings:
    """What the runs of a suite share.

    init: the folder to start from, empty for fresh weights
    grid: the settings to try; one of them where nothing varies
    steps: of every run; None: as many as the epochs have
    length: tokens of a row; None: as the table of tasks says
    max_length: the most that the model reads; None without a limit
    flags: further words for train.main
    """

    init: str
    grid: Sequence[Setting]
    steps: int | None
    length: int | None
    max_length: int | None
    flags: Sequence[str]

    def words(self, task: GlueTask) -> list[str]:
        """The words for train.main that no setting changes."""
        length = min(self.length or task.length, self.max_length or 1_000_000)
        return [
            "--task=classify",
            f"--task.kind={'regression' if task.kind == 'regression' else 'single'}",
            *([f"--init={self.init}", "--init-head=fresh"] if self.init else []),
            f"--batch.length={length}",
            f"--data.field={'text,pair' if task.has_pairs else 'text'}",
            "--data.label=label",
            *self.flags,
        ]


def grid(name: str, rate: float, batch: int, epochs: float) -> list[Setting]:
    """The settings of a grid; one setting where `name` is empty."""
    rates, batches, lengths = GRIDS.get(name, ((rate,), (batch,), (epochs,)))
    return [Setting(*values) for values in product(rates, batches, lengths)]


def check_flags(words: Sequence[str]):
    """Raises UserError for a flag of train.main that this command sets itself."""
    for word in words:
        name = word.removeprefix("--").partition("=")[0].replace("-", "_")
        for prefix, remedy in _OWN.items():
            if word.startswith("--") and name.startswith(prefix):
                raise UserError(f"{word} is decided for every task by this command; {remedy}")
