"""Objects in pictures, with a box around each."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.detect.options import Detection
from train.tasks.detect.preset import PRESETS
from train.tasks.entry import TaskEntry

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.detect.task import DETECT

    return DETECT


ENTRY = TaskEntry(Detection, PRESETS, load)
