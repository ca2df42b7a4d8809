"""The options of questions about pictures."""

from typing import ClassVar, Literal

from tfm.options.choices import check_fields, check_rates, frozen, tag
from train.settings.images import Augment, Pixels
from train.settings.schema import Run
from train.settings.task_options import TaskOptions


@frozen
class AnswerPicture(TaskOptions):
    """Answers to questions about pictures, of those that training has (ViLT: Kim et al. 2021).

    --data.field=IMAGE,QUESTION names the columns of pictures and of questions, and --data.label that of answers.

    hide: none | picture | question: what the model does not see; how well it answers without is a baseline
    smoothing: probability that is divided among all answers in training (Szegedy et al. 2016)
    pixels: how a picture becomes pixels
    augment: random changes of training pictures
    """

    inputs: ClassVar[tuple[str, ...]] = ("tokens_and_patches",)

    name: Literal["answer-picture"] = tag("answer-picture")
    hide: Literal["none", "picture", "question"] = "none"
    smoothing: float = 0.0
    pixels: Pixels = Pixels()
    augment: Augment = Augment()

    def __post_init__(self):
        check_fields(self)
        check_rates(self, "smoothing", usual="0.1 is usual")
        if self.augment.mixes:
            raise ValueError("augment.mixup and cutmix mix classes, and questions do not mix; leave them out")

    def check_task(self, run: Run) -> None:
        if len(run.data.field.split(",")) != 2:
            raise ValueError(
                f"data.field={run.data.field} must name two columns, such as image,question: that of pictures and that "
                "of questions"
            )
