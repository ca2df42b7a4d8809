"""A class for every pixel."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.entry import TaskEntry
from train.tasks.segment.options import PixelClasses
from train.tasks.segment.preset import PRESETS

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.segment.task import SEGMENT

    return SEGMENT


ENTRY = TaskEntry(PixelClasses, PRESETS, load)
