"""The catalogue of tasks, and the options of each."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tfm.catalogue.options.reading import check_segments
from tfm.options.choices import alternatives, check_fields, check_maximum, check_minimum, check_rates, tag
from train.settings.contrast import Contrast
from train.settings.forerunners import Bilm, SkipThought
from train.settings.images import Image, NextPixel
from train.settings.limits import MAX_BEAMS
from train.settings.task_options import TaskOptions, check_model, parsed_weights


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
        check_fields(self)
        if not 0 < self.rate < 1:
            raise ValueError(f"rate={self.rate} must be between 0 and 1; BERT uses 0.15")


@dataclass(frozen=True)
class Lm(TaskOptions):
    """Language modelling from left to right (Radford et al. 2018).

    windows: rows begin anywhere in the text, all documents in a line; else a token sees its own document alone
    stride: validation rows begin so many tokens apart, and only their new tokens count; none: they do not overlap
    memory: a row continues the same row of the batch before, and layers see states of so many tokens before it; none:
        rows are texts of their own
    score_from: a token after which tokens count in the loss; none: all count, but in --data=copy and recall the answers
    score_to: a token at which they cease to, until the next --task.score-from; none: the end of a document
    """

    is_causal: ClassVar[bool] = True

    name: Literal["lm"] = tag("lm")
    windows: bool = False
    stride: int | None = None
    memory: int | None = None  # type: ignore[misc]
    score_from: str | None = None
    score_to: str | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, stride=1, memory=1)
        check_maximum(self, "no memory is as long", memory=1 << 20)

    def check(self, run: Any) -> None:
        if self.memory is not None:
            _check_memory(self, run)
        if self.score_to is not None and self.score_from is None:
            raise ValueError(f"task.score-to={self.score_to} ends what task.score-from begins; name that token too")
        if self.stride is not None and self.stride > run.batch.length:
            raise ValueError(
                f"task.stride={self.stride} must be at most batch.length={run.batch.length}, or tokens are left out"
            )


def _check_memory(task: Lm, run: Any):
    """Raises ValueError for a run whose rows do not continue one another, or whose model cannot see a memory."""
    if not task.windows:
        raise ValueError(f"task.memory={task.memory} continues a text from row to row; add --task.windows=true")
    if task.stride is not None:
        raise ValueError(
            f"task.memory={task.memory} needs rows that do not overlap; leave task.stride={task.stride} out"
        )
    if run.tokenizer.dropout:
        raise ValueError(
            f"tokenizer.dropout={run.tokenizer.dropout} cuts the text anew in each epoch, and task.memory="
            f"{task.memory} continues it; leave out one of them"
        )
    if run.teacher.folder:
        raise ValueError(f"task.memory={task.memory} keeps the states of one model; leave --teacher out")
    check_model(check_segments, run.model)


@dataclass(frozen=True)
class Classify(TaskOptions):
    """Classes or a number for a sentence or a pair of sentences (Devlin et al. 2018, section 4.1).

    kind: single | multi | regression: one class a text, any number of them, or a number
    class_weights: none | balanced (the inverse of their frequency) | w1,w2,...: weights of the classes in training
    smoothing: probability that is divided among all classes in training (Szegedy et al. 2016)
    focal: exponent by which texts that are classified well count less in training (Lin et al. 2017, gamma); 0: not
    """

    name: Literal["classify"] = tag("classify")
    kind: Literal["single", "multi", "regression"] = "single"
    class_weights: str = "none"
    smoothing: float = 0.0
    focal: float = 0.0

    def __post_init__(self):
        check_fields(self)
        _check_loss(self)
        weights = parsed_weights(self.class_weights)
        if weights is not None and self.kind != "single":
            raise ValueError(f"class_weights={self.class_weights} are of kind=single; leave one of them out")
        for name in ("smoothing", "focal"):
            if getattr(self, name) and self.kind == "regression":
                raise ValueError(f"{name}={getattr(self, name)} is for classes, not for kind=regression; leave it out")

    def check(self, run: Any) -> None:
        if run.teacher.folder and self.kind != "single":
            raise ValueError(f"task.kind={self.kind} learns from labels alone; a teacher is for task.kind=single")


@dataclass(frozen=True)
class Choice(TaskOptions):
    """One of several continuations of a text (Zellers et al. 2018; Devlin et al. 2018, section 4.4).

    choices: continuations of a row at most, as the data have; rows with fewer are padded
    smoothing: probability that is divided among the continuations of a row in training (Szegedy et al. 2016)
    focal: exponent by which rows that are right count less in training (Lin et al. 2017, gamma); 0: not
    """

    name: Literal["choice"] = tag("choice")
    choices: int = 4
    smoothing: float = 0.0
    focal: float = 0.0

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, choices=2)
        check_maximum(self, "a row is a text for each of them", choices=1000)
        _check_loss(self)


def _check_loss(options: Classify | Choice):
    """Raises ValueError for a smoothing or a focus that no loss has."""
    check_rates(options, "smoothing", usual="0.1 is usual")
    if options.focal < 0:
        raise ValueError(f"focal={options.focal} must not be negative; the paper has 2")
    check_maximum(options, "the loss of every row would vanish", focal=1000)


@dataclass(frozen=True)
class Tag(TaskOptions):
    """A label for every word: named entities, parts of speech (Devlin et al. 2018, section 5.3).

    stride: a sentence longer than batch.length is cut into windows that begin so many tokens apart; none: half of one
    """

    name: Literal["tag"] = tag("tag")
    stride: int | None = None

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, stride=1)

    def check(self, run: Any) -> None:
        largest = run.batch.length - 2
        if self.stride is not None and self.stride > largest:
            raise ValueError(
                f"task.stride={self.stride} must be at most {largest}, the room in batch.length={run.batch.length}, "
                "or words are left out"
            )
        if run.tokenizer.dropout:
            raise ValueError(f"tokenizer.dropout={run.tokenizer.dropout} splits whole texts, not words; leave it out")


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
        check_fields(self)
        check_minimum(self, beams=1)
        check_maximum(self, "every beam is a text in memory", beams=MAX_BEAMS)
        check_rates(self, "smoothing", usual="the paper has 0.1")
        if self.bleu < 0:
            raise ValueError(f"bleu={self.bleu} must not be negative; 0 means none before the end")
        if self.source == self.target:
            raise ValueError(f"source={self.source} and task.target are the same; name two columns or languages")

    def check(self, run: Any) -> None:
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
        check_fields(self)
        check_minimum(self, stride=1, max_question=1, max_answer=1, n_best=1)
        check_maximum(self, "starts and ends of each window are combined", n_best=1000)

    def check(self, run: Any) -> None:
        if run.tokenizer.dropout:
            raise ValueError(
                f"tokenizer.dropout={run.tokenizer.dropout} is not for task=span, whose answers stand at tokens; "
                "leave it out"
            )


# A run has the options of its own task; a task module reads them without asking of which class they are.
if TYPE_CHECKING:
    Task = Any
else:
    Task = Mlm | Lm | Classify | Tag | Span | Choice | Translate | Contrast | Image | NextPixel | SkipThought | Bilm

TASKS = alternatives(Task)
