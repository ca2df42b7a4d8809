"""Answers to questions, which are places in a passage."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.entry import TaskEntry
from train.tasks.span.options import Span
from train.tasks.span.preset import PRESETS

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.span.task import SPAN

    return SPAN


ENTRY = TaskEntry(Span, PRESETS, load)
