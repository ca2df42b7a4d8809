"""What a task is: a record of functions and facts, `Task`. Commands ask it for parameters, rows, losses and metrics."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from jax import Array
from jax.sharding import Mesh

from tfm.config.model import Config
from tfm.params import PyTree
from train.data import by_source
from train.data.corpus import AnyRows, Corpus
from train.data.fields import BatchSpec
from train.data.processors import ProcessorKind
from train.losses.loss import Sums
from train.screens.console import Log
from train.settings.predict import PredictOptions
from train.settings.schema import Run, TaskT
from train.text.sentence_transformers import Modules

Params = TypeVar("Params")
Inputs = TypeVar("Inputs")

# Sums of the loss over validation rows, and arrays of all these rows, by name.
Outcomes = Mapping[str, Any]

# What run.json says of the data.
Facts = Mapping[str, Any]

# min or max: the better of two values of a metric.
Goal = Callable[[float, float], float]


class Saved(Protocol):
    """What a run takes over from another one."""

    @property
    def processor(self) -> Any:
        """The processor."""

    @property
    def facts(self) -> Facts:
        """The facts of its data; none where the data differ."""


# The fact that names the classes of the head that a run starts from.
HEAD_CLASSES = "head_classes"

# The fact of a folder of another library that its tokenizer alone says what stands around a text.
TOKENIZER_MARKS = "tokenizer_marks"


def head_classes(saved: Saved | None) -> list[str]:
    """The classes of the head that a run starts from; none where it starts from another task, or with a new head."""
    return list(saved.facts.get(HEAD_CLASSES) or ()) if saved else []


class Folder(Saved, Protocol):
    """The run folder, or the Hugging Face folder, of a model."""

    path: Path

    @property
    def config(self) -> Run:
        """The run that made the parameters."""

    @property
    def text_prefix(self) -> list[int]:
        """The tokens before every document in training, of a language model."""

    @property
    def modules(self) -> Modules:
        """How a text becomes a vector."""


class HfSource(Protocol):
    """A Hugging Face folder: `root`, and `path`, in it, of the model."""

    root: Path
    path: Path

    @property
    def config(self) -> Run:
        """A run that could have made the parameters."""

    @property
    def hf_model(self) -> Config:
        """The model that config.json describes."""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of config.json."""

    @property
    def processor(self) -> Any:
        """The processor."""

    @property
    def modules(self) -> Modules:
        """How a text becomes a vector."""


class Prediction(NamedTuple):
    """What is predicted for an input: a line of text, and the object that stands in a .jsonl file."""

    line: str
    row: Mapping[str, object]


class AttendedRow(NamedTuple):
    """A row of tokens that a model reads.

    tokens: int32 [T]
    second: where the second text of a pair begins, or T
    """

    tokens: np.ndarray
    second: int


@dataclass(frozen=True)
class Predictor(Generic[Params, Inputs]):
    """How train.predict asks a task.

    flags: those that it reads beside the common ones
    inputs: (options, folder) -> what to predict for; raises UserError for bad input
    predict: (params, folder, inputs, log, rows of a batch) -> a prediction for each input, in order
    attended: (options, folder) -> the row of tokens whose attention is drawn, an `AttendedRow`; None: there is none
    """

    flags: tuple[str, ...]
    inputs: Callable[[PredictOptions, Folder], Inputs]
    predict: Callable[[Params, Folder, Inputs, Log, int], Iterator[Prediction]]
    attended: Callable[[PredictOptions, Folder], AttendedRow] | None = None


class Load(Protocol[TaskT, AnyRows]):
    """How a task reads its data."""

    def __call__(
        self, run: Run[TaskT], log: Log, saved: Saved | None = None, valid_only: bool = False
    ) -> Corpus[AnyRows]:
        """Tokenizer and rows as a run describes them. Raises UserError for bad data.

        saved: processor and facts of the run to resume, to start from or to evaluate; None: a new processor
        valid_only: no training rows, where --eval-data names others for validation
        """


def nothing_generated(params: Any, run: Run, corpus: Corpus, log: Log, **options: Any) -> dict[str, Any]:
    """{}: the model writes nothing."""
    return {}


@dataclass(frozen=True)
class Task(Generic[TaskT, Params, AnyRows]):
    """What commands ask of a task; `train/tasks/mlm/task.py` is an example. A field with a default may be left out."""

    # run -> the spec tree of the parameters.
    specs: Callable[[Run[TaskT]], Params]

    # run -> the fields of a batch: axes, dtypes, which of them weigh targets.
    batch_spec: Callable[[Run[TaskT]], BatchSpec]

    # (run, log, saved, valid_only) -> the corpus, at the start of a run and of train.evaluate.
    load: Load[TaskT, AnyRows]

    # (params, model, batch, key of dropout) -> float32 sums over the rows of a batch, "loss" and "weight" among them;
    # those of parts of a batch add up. In evaluation, without a key, also arrays [B, ...] of all rows.
    loss: Callable[[Params, Config, Mapping[str, Array], Array | None], Sums]

    # Sums over many batches -> means, as the log shows them; in evaluation the sums hold arrays of all rows too.
    metrics: Callable[[Outcomes], dict[str, float]]

    # The metrics that may choose the best checkpoint (--eval.best), and which of two values is better.
    goals: Mapping[str, Goal]

    # corpus -> metrics of guesses that need no model, and `n`; beside those of the model.
    baselines: Callable[[Corpus[AnyRows]], dict[str, float]]

    # (params, run, corpus, log, outcomes, folder): prints and draws examples after the last step.
    report: Callable[[Params, Run[TaskT], Corpus[AnyRows], Log, Outcomes, Path], None]

    # How a run folder keeps what turns examples into rows, such as a tokenizer.
    processor: ProcessorKind

    # Commands that make sense after a run; {folder} stands for the run folder.
    next_commands: tuple[str, ...]

    # corpus -> the names of the goals that its evaluations measure, where options or data leave some out; None: all.
    measured: Callable[[Corpus[AnyRows]], Collection[str] | None] = lambda corpus: None

    # (outcomes, corpus, during_training) -> metrics that need the validation rows, not sums alone.
    corpus_metrics: Callable[[Outcomes, Corpus[AnyRows], bool], dict[str, float]] = lambda outcomes, corpus, during: {}

    # What train.generate makes with the model.
    generates: Literal["", "continuation", "translation", "transcript", "pictures", "unmasking"] = ""

    # (params, run, corpus, log, during_training=, against=) -> metrics of what the model writes for validation rows.
    generation_metrics: Callable[..., dict[str, Any]] = nothing_generated

    # (params, run, corpus, folder): draws pictures that the model makes, at every evaluation.
    draw_progress: Callable[[Params, Run[TaskT], Corpus[AnyRows], Path], None] | None = None

    # (run, parameters) -> those of the model that other tasks and other libraries take, where training has more.
    final_model: Callable[[Run[TaskT], PyTree], PyTree] = lambda run, params: params

    # How train.predict asks the task; None: it predicts nothing.
    predictor: Predictor[Params, Any] | None = None

    # The flags of train.evaluate that the task reads, beside those named like its options.
    evaluate_flags: tuple[str, ...] = ()

    # (outcomes, corpus) -> the content of the files that these flags name, by flag.
    evaluation_files: Callable[[Outcomes, Corpus[AnyRows]], dict[str, Any]] = lambda outcomes, corpus: {}

    # (batches, corpus, rows, path): draws rows of pictures, for train.inspect; None: rows are shown as tokens.
    contact_sheet: Callable[[Iterable[Mapping[str, np.ndarray]], Corpus[AnyRows], int, Path], None] | None = None

    # (params, folder, texts and pictures, log) -> their vectors [N,D], for train.embed; None: vectors are of states.
    encode_items: Callable[[Params, Folder, list[Any], Log], np.ndarray] | None = None

    # run -> how train.embed makes a vector of a text.
    modules: Callable[[Run[TaskT]], Modules] = lambda run: Modules()

    # (run, tokenizer) -> the tokens before every document in training, of a language model.
    text_prefix: Callable[[Run[TaskT], Any], list[int]] = lambda run, tokenizer: []

    # Kinds of heads of Hugging Face models that the task trains.
    hf_heads: tuple[str, ...] = ()

    # Roles of special tokens in tokenizer_config.json, beside those of all tasks.
    hf_tokens: Mapping[str, str] = field(default_factory=dict)

    # (kind of head, folder) -> options of a run that could have trained this Hugging Face model.
    hf_run_values: Callable[[str, HfSource], dict[str, Any]] = lambda head, folder: {}

    # (run, processor, facts of run.json about the data) -> fields of config.json that depend on the task.
    hf_fields: Callable[[Run[TaskT], Any, Facts], dict[str, Any]] = lambda run, processor, facts: {}

    # (run, tokenizer) -> how the exported tokenizer marks a text and a pair of texts; (): it marks texts itself.
    hf_template: Callable[[Run[TaskT], Any], tuple[str, ...]] = lambda run, tokenizer: (
        "{cls} $A {sep}",
        "{cls} $A {sep} $B:1 {sep}:1",
    )

    # (run, tokenizer) -> fields of the exported tokenizer_config.json that depend on the task.
    hf_tokenizer_fields: Callable[[Run[TaskT], Any], Mapping[str, object]] = lambda run, tokenizer: {}

    # (run folder, parameters as trained, folder): writes files of other libraries beside those of transformers.
    save_hf: Callable[[Folder, PyTree, Path], None] = lambda folder, params, to: None

    # (Hugging Face folder, parameters, mesh) -> the parameters with those that lie in files of other libraries.
    load_hf: Callable[[HfSource, PyTree, Mesh], PyTree] = lambda folder, params, mesh: params

    @property
    def writes_in_order(self) -> bool:
        """Whether train.generate writes each token from those before it."""
        return self.generates not in ("", "unmasking")


def measure(
    task: Task[Any, Any, AnyRows], outcomes: Outcomes, corpus: Corpus[AnyRows], during_training: bool = False
) -> dict[str, float]:
    """The metrics of a task, from the sums and arrays of validation rows and from these rows themselves, and the loss
    of each of several sources."""
    losses = dict(by_source.metrics(task.metrics, outcomes))
    return task.metrics(outcomes) | task.corpus_metrics(outcomes, corpus, during_training) | losses
