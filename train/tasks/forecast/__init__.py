"""The next values of series."""

from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.tasks.entry import TaskEntry
from train.tasks.forecast.options import Forecast
from train.tasks.forecast.preset import PRESETS

if TYPE_CHECKING:
    from train.tasks.record import Task


def load(model: Config) -> "Task":
    """The task, of any model."""
    from train.tasks.forecast.task import FORECAST

    return FORECAST


ENTRY = TaskEntry(Forecast, PRESETS, load)
