"""Translation."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.entry import TaskEntry
from train.tasks.translate.options import Translate
from train.tasks.translate.preset import PRESETS

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.translate.task import TRANSLATE

    return TRANSLATE


ENTRY = TaskEntry(Translate, PRESETS, load)
