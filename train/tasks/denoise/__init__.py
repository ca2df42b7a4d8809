"""Denoising: an encoder reads a text without some spans, and a decoder writes these."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.denoise.options import Denoise
from train.tasks.denoise.preset import PRESETS
from train.tasks.entry import TaskEntry

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.denoise.task import DENOISE

    return DENOISE


ENTRY = TaskEntry(Denoise, PRESETS, load)
