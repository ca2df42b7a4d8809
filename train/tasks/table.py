"""The table of tasks. A task itself is loaded when it is asked for: it needs jax, and the command line does not."""

from typing import TYPE_CHECKING, Union

from tfm.config.model import Config
from tfm.options.choices import frozen
from train.settings.schema import Run
from train.settings.task_options import TaskOptions
from train.tasks import (
    answer_picture,
    bilm,
    choice,
    classify,
    contrast,
    denoise,
    detect,
    diffuse,
    forecast,
    image,
    late,
    lm,
    mlm,
    pixels,
    rank,
    restore,
    rtd,
    segment,
    skipthought,
    span,
    tag,
    translate,
)
from train.tasks.entry import TaskEntry

if TYPE_CHECKING:
    from train.tasks.record import Task

ENTRIES: tuple[TaskEntry, ...] = (
    mlm.ENTRY,
    lm.ENTRY,
    classify.ENTRY,
    tag.ENTRY,
    span.ENTRY,
    choice.ENTRY,
    translate.ENTRY,
    denoise.ENTRY,
    rtd.ENTRY,
    diffuse.ENTRY,
    contrast.ENTRY,
    rank.ENTRY,
    late.ENTRY,
    image.ENTRY,
    pixels.ENTRY,
    segment.ENTRY,
    detect.ENTRY,
    restore.ENTRY,
    answer_picture.ENTRY,
    forecast.ENTRY,
    skipthought.ENTRY,
    bilm.ENTRY,
)

# By the names that --task has.
TASKS = {entry.options.name: entry for entry in ENTRIES}

# What --task chooses from.
if TYPE_CHECKING:
    AnyOptions = TaskOptions
else:
    AnyOptions = Union[tuple(entry.options for entry in ENTRIES)]  # noqa: UP007


@frozen
class AnyRun(Run[TaskOptions]):
    """A run of any task, as flags and run.json describe it."""

    task: AnyOptions = mlm.Mlm()


def load_task(name: str, model: Config) -> "Task":
    """The task of a name, for a model: pictures with captions are trained otherwise than texts."""
    return TASKS[name].load(model)


def task_of(run: Run) -> "Task":
    """The task that trains the model of a run."""
    return load_task(run.task.name, run.model)
