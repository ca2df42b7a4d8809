"""Translation, and texts of sounds."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.settings.sounds import reads_frames
from train.tasks.entry import TaskEntry
from train.tasks.translate.options import Translate
from train.tasks.translate.preset import PRESETS

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task: of sounds, where the encoder reads frames."""
    if model.encoder.input is not None and reads_frames(model.encoder.input):
        from train.tasks.translate.speech.task import SPEECH

        return SPEECH
    from train.tasks.translate.task import TRANSLATE

    return TRANSLATE


ENTRY = TaskEntry(Translate, PRESETS, load)
