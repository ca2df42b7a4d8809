"""The options of answers to questions."""

from typing import ClassVar, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from train.settings.schema import Run
from train.settings.task_options import TaskOptions


@frozen
class Span(TaskOptions):
    """Answers to questions, which are places in a passage (Rajpurkar et al. 2016; Devlin et al. 2018, section 4.2).

    version: auto | v1 | v2: whether a question may have no answer (v2); auto: whether one of the data has none
    stride: tokens between the starts of windows on a passage that is longer than a row
    max_question: tokens of a question, never more than half a row; those after them are cut off
    max_answer: tokens of an answer that is given
    n_best: starts and ends of a window that are combined, and answers of a question that are kept
    null_threshold: a question gets no answer where the score of none is above the best one by more (v2)
    repair: answers that do not stand at their answer_start move to the nearest place with their text; else an error
    """

    has_buckets: ClassVar[bool] = True

    name: Literal["span"] = tag("span")
    version: Literal["auto", "v1", "v2"] = "auto"
    stride: int = 128
    max_question: int = 64
    max_answer: int = 30
    n_best: int = 20
    null_threshold: float = 0.0
    repair: bool = False

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, stride=1, max_question=1, max_answer=1, n_best=1)
        check_maximum(self, "starts and ends of each window are combined", n_best=1000)

    def check_task(self, run: Run) -> None:
        if run.tokenizer.randomness:
            raise ValueError(
                f"tokenizer.{run.tokenizer.randomness} is not for task=span, whose answers stand at tokens; "
                "leave it out"
            )
