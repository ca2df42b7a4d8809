"""Classes or a value for a text or a pair of texts."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.classify.options import Classify
from train.tasks.classify.preset import PRESETS
from train.tasks.entry import TaskEntry

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.classify.task import CLASSIFY

    return CLASSIFY


ENTRY = TaskEntry(Classify, PRESETS, load)
