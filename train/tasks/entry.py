"""What the command line knows of a task, without jax."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tfm.config.model import Config
from train.settings.recipes.fields import Preset
from train.settings.task_options import TaskOptions

if TYPE_CHECKING:
    from train.tasks.record import Task


class TaskEntry(NamedTuple):
    """A line in the table of tasks.

    options: the class of its options; their `name` is that of the task
    presets: sets of flags under a name; the first is the default
    load: the model of a run -> the task, whose modules are imported then
    """

    options: type[TaskOptions]
    presets: Mapping[str, Preset]
    load: Callable[[Config], "Task"]
