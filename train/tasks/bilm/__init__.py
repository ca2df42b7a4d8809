"""Language modelling in both directions."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.bilm.options import Bilm
from train.tasks.bilm.preset import PRESETS
from train.tasks.entry import TaskEntry

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.bilm.task import BILM

    return BILM


ENTRY = TaskEntry(Bilm, PRESETS, load)
