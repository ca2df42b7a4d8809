"""Answers to questions about pictures."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.answer_picture.options import AnswerPicture
from train.tasks.answer_picture.preset import PRESETS
from train.tasks.entry import TaskEntry

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.answer_picture.task import ANSWER_PICTURE

    return ANSWER_PICTURE


ENTRY = TaskEntry(AnswerPicture, PRESETS, load)
