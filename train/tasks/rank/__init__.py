"""How well passages answer a query, by a model that reads both."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.entry import TaskEntry
from train.tasks.rank.options import Rank
from train.tasks.rank.preset import PRESETS

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.rank.task import RANK

    return RANK


ENTRY = TaskEntry(Rank, PRESETS, load)
