"""The options of labels of words."""

from typing import ClassVar, Literal

from tfm.options.choices import check_fields, check_minimum, frozen, tag
from train.settings.schema import Run
from train.settings.task_options import TaskOptions


@frozen
class Tag(TaskOptions):
    """A label for every word: named entities, parts of speech (Devlin et al. 2018, section 5.3).

    stride: a sentence longer than batch.length is cut into windows; tokens between their beginnings; none: half of one
    """

    has_buckets: ClassVar[bool] = True

    name: Literal["tag"] = tag("tag")
    stride: int | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, stride=1)

    def check_task(self, run: Run) -> None:
        largest = run.batch.length - 2
        if self.stride is not None and self.stride > largest:
            raise ValueError(
                f"task.stride={self.stride} must be at most {largest}, the room in batch.length={run.batch.length}, "
                "or words are left out"
            )
        if run.tokenizer.randomness:
            raise ValueError(f"tokenizer.{run.tokenizer.randomness} splits whole texts, not words; leave it out")
