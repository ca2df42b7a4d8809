"""A label for every word."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.entry import TaskEntry
from train.tasks.tag.options import Tag
from train.tasks.tag.preset import PRESETS

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.tag.task import TAG

    return TAG


ENTRY = TaskEntry(Tag, PRESETS, load)
