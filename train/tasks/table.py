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
    from train.tasks.mlm.task import MLM

    return MLM


def _lm(model: Config) -> "Task":
    from train.tasks.lm.task import LM

    return LM


def _classify(model: Config) -> "Task":
    from train.tasks.classify.task import CLASSIFY

    return CLASSIFY


def _tag(model: Config) -> "Task":
    from train.tasks.tag.task import TAG

    return TAG


def _span(model: Config) -> "Task":
    from train.tasks.span.task import SPAN

    return SPAN


def _choice(model: Config) -> "Task":
    from train.tasks.choice.task import CHOICE

    return CHOICE


def _translate(model: Config) -> "Task":
    from train.tasks.translate.task import TRANSLATE

    return TRANSLATE


def _image(model: Config) -> "Task":
    from train.tasks.image.task import IMAGE

    return IMAGE


def _pixels(model: Config) -> "Task":
    from train.tasks.pixels.task import PIXELS

    return PIXELS


def _skipthought(model: Config) -> "Task":
    from train.tasks.skipthought.task import SKIPTHOUGHT

    return SKIPTHOUGHT


def _bilm(model: Config) -> "Task":
    from train.tasks.bilm.task import BILM

    return BILM


def _contrast(model: Config) -> "Task":
    from train.tasks.captions.task import CAPTIONS
    from train.tasks.contrast.task import CONTRAST

    return CONTRAST if model.images is None else CAPTIONS


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
