"""A vector of each token of a text; a passage answers a query where its tokens do."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.entry import TaskEntry
from train.tasks.late.options import Late
from train.tasks.late.preset import PRESETS

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.late.task import LATE

    return LATE


ENTRY = TaskEntry(Late, PRESETS, load)
