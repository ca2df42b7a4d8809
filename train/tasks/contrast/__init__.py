"""Vectors of texts, by contrast with all other texts of a batch."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.contrast.options import Contrast
from train.tasks.contrast.preset import PRESETS
from train.tasks.entry import TaskEntry

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task of texts, or that of pictures and captions."""
    from train.tasks.captions.task import CAPTIONS
    from train.tasks.contrast.task import CONTRAST

    return CONTRAST if model.images is None else CAPTIONS


ENTRY = TaskEntry(Contrast, PRESETS, load)
