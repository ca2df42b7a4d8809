"""Masked language modelling: hide some of the tokens and predict them from the rest."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.entry import TaskEntry
from train.tasks.mlm.options import Mlm
from train.tasks.mlm.preset import PRESETS

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.mlm.task import MLM

    return MLM


ENTRY = TaskEntry(Mlm, PRESETS, load)
