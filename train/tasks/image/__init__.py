"""Classes of pictures, of sounds and of videos."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.settings.images import video_frames
from train.settings.sounds import reads_frames
from train.tasks.entry import TaskEntry
from train.tasks.image.options import Image
from train.tasks.image.preset import PRESETS

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task: of sounds, where the model reads frames, or of videos."""
    if reads_frames(model.input):
        from train.tasks.image.sounds.task import SOUNDS

        return SOUNDS
    from train.tasks.image.task import IMAGE, VIDEO

    return VIDEO if video_frames(model.input) else IMAGE


ENTRY = TaskEntry(Image, PRESETS, load)
