"""Pictures out of pictures."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.entry import TaskEntry
from train.tasks.restore.options import Restoration
from train.tasks.restore.preset import PRESETS

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.restore.task import RESTORE

    return RESTORE


ENTRY = TaskEntry(Restoration, PRESETS, load)
