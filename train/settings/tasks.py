"""The catalogue of tasks, and the options of each."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tfm.config.choices import Options, alternatives, check_choices, check_minimum, tag


class TaskOptions(Options):
    """The options of one task; `check` judges the whole run."""

    # Whether batches may be of rows of similar lengths, --batch.tokens at most.
    has_buckets: ClassVar[bool] = False


@dataclass(frozen=True)
class Mlm(TaskOptions):
    """Masked language modelling (Devlin et al. 2018).

    rate: fraction of tokens to predict; of them 80 % are masked, 10 % replaced, 10 % kept
    whole_words: hide words, not pieces of them
    nsp: also predict whether two sentences follow each other; every row is such a pair
    """

    name: Literal["mlm"] = tag("mlm")
    rate: float = 0.15
    whole_words: bool = False
    nsp: bool = False

    def __post_init__(self):
        if not 0 < self.rate < 1:
            raise ValueError(f"rate={self.rate} must be between 0 and 1; BERT uses 0.15")


@dataclass(frozen=True)
class Lm(TaskOptions):
    """Language modelling from left to right (Radford et al. 2018).

    windows: rows begin anywhere in the text, all documents in a line; else a token sees its own document alone
    stride: validation rows begin so many tokens apart, and only their new tokens count; none: they do not overlap
    """

    name: Literal["lm"] = tag("lm")
    windows: bool = False
    stride: int | None = None

    def __post_init__(self):
        check_minimum(self, stride=1)

    def check(self, run: Any) -> None:  # noqa: D102
        if self.stride is not None and self.stride > run.batch.length:
            raise ValueError(
                f"task.stride={self.stride} must be at most batch.length={run.batch.length}, or tokens are left out"
            )


@dataclass(frozen=True)
class Classify(TaskOptions):
    """Classes or a number for a sentence or a pair of sentences (Devlin et al. 2018, section 4.1).

    kind: single | multi | regression: one class a text, any number of them, or a number
    """

    name: Literal["classify"] = tag("classify")
    kind: Literal["single", "multi", "regression"] = "single"

    def __post_init__(self):
        check_choices(self)


@dataclass(frozen=True)
class Translate(TaskOptions):
    """Translation, or any other text from a text (Vaswani et al. 2017).

    source: the language to translate from: a column of the data, or the ending of one of two files
    target: the language to translate into
    long: drop | error: what becomes of a pair that is longer than batch.length
    smoothing: probability that is divided among all tokens in training
    bleu: validation sentences that are translated at each evaluation, for BLEU; all at the end
    beams: translations that are followed at a time when sentences are translated for BLEU; 1 is greedy
    length_penalty: of that search; above 0, longer translations are preferred
    start: the token that a translation begins with; empty: [CLS]. Models of transformers have their own
    """

    has_buckets: ClassVar[bool] = True

    name: Literal["translate"] = tag("translate")
    source: str = "en"
    target: str = "de"
    long: Literal["drop", "error"] = "drop"
    smoothing: float = 0.1
    bleu: int = 200
    beams: int = 5
    length_penalty: float = 0.6
    start: str = ""

    def __post_init__(self):
        check_choices(self)
        check_minimum(self, beams=1)
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing={self.smoothing} must be at least 0 and less than 1; the paper has 0.1")
        if self.bleu < 0:
            raise ValueError(f"bleu={self.bleu} must not be negative; 0 means none before the end")
        if self.source == self.target:
            raise ValueError(f"source={self.source} and task.target are the same; name two columns or languages")

    def check(self, run: Any) -> None:  # noqa: D102
        if run.eval.best in ("bleu", "chrf") and not self.bleu:
            raise ValueError(
                f"eval.best={run.eval.best} needs translations to judge; set --task.bleu to a number of sentences"
            )


@dataclass(frozen=True)
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

    name: Literal["span"] = tag("span")
    version: Literal["auto", "v1", "v2"] = "auto"
    stride: int = 128
    max_question: int = 64
    max_answer: int = 30
    n_best: int = 20
    null_threshold: float = 0.0
    repair: bool = False

    def __post_init__(self):
        check_choices(self)
        check_minimum(self, stride=1, max_question=1, max_answer=1, n_best=1)

    def check(self, run: Any) -> None:  # noqa: D102
        if run.tokenizer.dropout:
            raise ValueError(
                f"tokenizer.dropout={run.tokenizer.dropout} is not for task=span, whose answers stand at tokens; "
                "leave it out"
            )


# A run has the options of its own task; a task module reads them without asking of which class they are.
if TYPE_CHECKING:
    Task = Any
else:
    Task = Mlm | Lm | Classify | Span | Translate

TASKS = alternatives(Task)
