"""Replaced-token detection: which tokens a small generator put in place of others."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.entry import TaskEntry
from train.tasks.rtd.options import Rtd
from train.tasks.rtd.preset import PRESETS

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.rtd.task import RTD

    return RTD


ENTRY = TaskEntry(Rtd, PRESETS, load)
