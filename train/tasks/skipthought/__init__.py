"""The vector of a sentence predicts the sentences before and after it."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.entry import TaskEntry
from train.tasks.skipthought.options import SkipThought
from train.tasks.skipthought.preset import PRESETS

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.skipthought.task import SKIPTHOUGHT

    return SKIPTHOUGHT


ENTRY = TaskEntry(SkipThought, PRESETS, load)
