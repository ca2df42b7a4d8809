"""Pictures, pixel by pixel."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.entry import TaskEntry
from train.tasks.pixels.options import NextPixel
from train.tasks.pixels.preset import PRESETS

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.pixels.task import PIXELS

    return PIXELS


ENTRY = TaskEntry(NextPixel, PRESETS, load)
