"""What a classifier of pictures or of sounds takes for another class."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from train.metrics import scores
from train.metrics.calibration import reliability, scaled_reliability
from train.screens import plots
from train.screens.console import Log
from train.tasks.classification import counted


class Mistake(NamedTuple):
    """A row, the class that the model says, and the right one."""

    row: int
    guess: str
    right: str


def mistakes(
    outcomes: Mapping[str, np.ndarray], names: Sequence[str], count: int, kind: str, log: Log, folder: Path
) -> list[Mistake]:
    """Draws plots/confusion.png and reliability.png, says how many of what `kind` says are taken for another class, and
    returns some of them, at most `count`, which are to be drawn in plots/mistakes.png."""
    rows, (logits, labels) = np.flatnonzero(outcomes["weights"] > 0), counted(outcomes)
    chosen = logits.argmax(1)
    plots.confusion(scores.confusion(chosen, labels, len(names)), names, folder)
    plots.reliability(reliability(logits, labels), scaled_reliability(logits, labels), folder)
    wrong = np.flatnonzero(chosen != labels)
    sheet = ": plots/mistakes.png" if len(wrong) else ""
    log.info(f"{len(wrong):,} of {len(labels):,} {kind} are taken for another class{sheet}")
    shown = wrong[:: max(1, len(wrong) // count)][:count]
    return [Mistake(int(rows[place]), names[chosen[place]], names[labels[place]]) for place in shown]
