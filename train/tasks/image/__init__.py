"""Classes of pictures, and of sounds."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.settings.sounds import reads_frames
from train.tasks.entry import TaskEntry
from train.tasks.image.options import Image
from train.tasks.image.preset import PRESETS

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task: of sounds, where the model reads frames."""
    if reads_frames(model.input):
        from train.tasks.image.sounds.task import SOUNDS

        return SOUNDS
    from train.tasks.image.task import IMAGE

    return IMAGE


ENTRY = TaskEntry(Image, PRESETS, load)
