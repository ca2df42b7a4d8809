"""The options of language modelling from left to right."""

from typing import ClassVar, Literal

from tfm.catalogue.options.reading import check_segments
from tfm.options.choices import check_fields, check_maximum, check_minimum, frozen, tag
from train.settings.schema import Run
from train.settings.task_options import TaskOptions, check_model

# Examples before an answer, at most.
MAX_SHOTS = 10_000


@frozen
class Lm(TaskOptions):
    """Language modelling from left to right (Radford et al. 2018).

    windows: rows begin anywhere in the text, all documents in a line; else a token sees its own document alone
    stride: tokens between the beginnings of validation rows, whose new tokens alone count; none: they do not overlap
    memory: a row continues the same row of the batch before, and layers see the states of this count of tokens; none:
        rows are texts of their own
    score_from: a token after which tokens count in the loss; none: all count, but in --data=copy, recall and in-context
        the answers
    score_to: a token at which they cease to, until the next --task.score-from; none: the end of a document
    shots: of such texts of examples, only the answer behind so many of them counts; none: all do
    """

    is_causal: ClassVar[bool] = True

    name: Literal["lm"] = tag("lm")
    windows: bool = False
    stride: int | None = None
    memory: int | None = None  # type: ignore[misc]
    score_from: str | None = None
    score_to: str | None = None
    shots: int | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, stride=1, memory=1, shots=0)
        check_maximum(self, "no text has as many examples", shots=MAX_SHOTS)
        check_maximum(self, "no memory is as long", memory=1 << 20)

    def check_task(self, run: Run) -> None:
        if self.memory is not None:
            _check_memory(self, run)
        if self.score_to is not None and self.score_from is None:
            raise ValueError(f"task.score-to={self.score_to} ends what task.score-from begins; name that token too")
        if self.stride is not None and self.stride > run.batch.length:
            raise ValueError(
                f"task.stride={self.stride} must be at most batch.length={run.batch.length}, or tokens are left out"
            )


def _check_memory(task: Lm, run: Run):
    """Raises ValueError for a run whose rows do not continue one another, or whose model cannot see a memory."""
    if not task.windows:
        raise ValueError(f"task.memory={task.memory} continues a text from row to row; add --task.windows=true")
    if task.stride is not None:
        raise ValueError(
            f"task.memory={task.memory} needs rows that do not overlap; leave task.stride={task.stride} out"
        )
    if run.tokenizer.randomness:
        raise ValueError(
            f"tokenizer.{run.tokenizer.randomness} cuts the text anew in each epoch, and task.memory="
            f"{task.memory} continues it; leave out one of them"
        )
    if run.teacher.folder:
        raise ValueError(f"task.memory={task.memory} keeps the states of one model; leave --teacher out")
    check_model(check_segments, run.model)
