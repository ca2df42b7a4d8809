"""Language modelling from left to right."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.entry import TaskEntry
from train.tasks.lm.options import Lm
from train.tasks.lm.preset import PRESETS

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.lm.task import LM

    return LM


ENTRY = TaskEntry(Lm, PRESETS, load)
