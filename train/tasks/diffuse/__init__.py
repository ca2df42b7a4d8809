"""Masked diffusion: any number of tokens is hidden, and the model writes by uncovering."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.diffuse.options import Diffuse
from train.tasks.diffuse.preset import PRESETS
from train.tasks.entry import TaskEntry

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.diffuse.task import DIFFUSE

    return DIFFUSE


ENTRY = TaskEntry(Diffuse, PRESETS, load)
