"""The table of tasks. A task is loaded when it is asked for: it needs jax, and the command line does not."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tfm.config.model import Config
from train.settings.schema import Run

if TYPE_CHECKING:
    from train.tasks.record import Task


def task_of(run: Run) -> "Task":
    """The task that trains the model of a run."""
    return load_task(run.task.name, run.model)


def load_task(name: str, model: Config) -> "Task":
    """The task of a name, for a model: pictures with captions are trained otherwise than texts."""
    return _LOADERS[name](model)


def _mlm(model: Config) -> "Task":
    from train.tasks import mlm

    return mlm.TASK


def _lm(model: Config) -> "Task":
    from train.tasks import lm

    return lm.TASK


def _classify(model: Config) -> "Task":
    from train.tasks import classify

    return classify.TASK


def _tag(model: Config) -> "Task":
    from train.tasks import tag

    return tag.TASK


def _span(model: Config) -> "Task":
    from train.tasks import span

    return span.TASK


def _choice(model: Config) -> "Task":
    from train.tasks import choice

    return choice.TASK


def _translate(model: Config) -> "Task":
    from train.tasks import translate

    return translate.TASK


def _image(model: Config) -> "Task":
    from train.tasks import image

    return image.TASK


def _pixels(model: Config) -> "Task":
    from train.tasks import pixels

    return pixels.TASK


def _skipthought(model: Config) -> "Task":
    from train.tasks import skipthought

    return skipthought.TASK


def _bilm(model: Config) -> "Task":
    from train.tasks import bilm

    return bilm.TASK


def _contrast(model: Config) -> "Task":
    from train.tasks import captions, contrast

    return contrast.TASK if model.images is None else captions.TASK


_LOADERS: Mapping[str, Callable[[Config], "Task"]] = {
    "mlm": _mlm,
    "lm": _lm,
    "classify": _classify,
    "tag": _tag,
    "span": _span,
    "choice": _choice,
    "translate": _translate,
    "contrast": _contrast,
    "image": _image,
    "pixels": _pixels,
    "skipthought": _skipthought,
    "bilm": _bilm,
}
