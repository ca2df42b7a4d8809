"""One of several continuations of a text."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.choice.options import Choice
from train.tasks.choice.preset import PRESETS
from train.tasks.entry import TaskEntry

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.choice.task import CHOICE

    return CHOICE


ENTRY = TaskEntry(Choice, PRESETS, load)
