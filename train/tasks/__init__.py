"""One file per task, found by its name, or as its options say (`TaskOptions.module`). Each module has:

`specs(run)`, `batch_spec(run)`, `PROCESSOR`   the parameters, the fields of a batch, and what turns examples into them
`load(run, log, saved, valid_only)`            the corpus
`loss`, `metrics`, `METRICS`, `baselines`      sums over a batch, means of the sums, which of them choose a checkpoint
`report`, `NEXT_COMMANDS`                      what a run prints at its end
`corpus_metrics`                               only where metrics need the validation rows, not sums alone
`generation_metrics`                           only of tasks that write: metrics of what the model writes
`draw_progress`                                only of tasks that make pictures: draws some at every evaluation

For the other commands it declares `GENERATES` ("continuation", "translation", "pictures" or ""), `PREDICT_FLAGS`,
`EVALUATE_FLAGS`, and for Hugging Face folders `HF_HEADS` (kinds of heads that it trains), `HF_TOKENS` (roles of special
tokens), `hf_run_values`, `hf_fields` and `hf_template`, and `save_hf(run, folder)` where other libraries read files of
their own beside those of transformers.

`PREDICT_FLAGS` are the flags of train.predict that the task reads, None where it predicts nothing. With them come
`inputs(options, folder)`, what to predict for, and `predict(params, folder, inputs, log, batch)`, a `Prediction` each.
`text_pool(run)`, of a task with vectors of texts of its own, is how train.embed pools states by default; else the mean.
A task whose rows are pictures has `contact_sheet(batches, corpus, rows, path)`, which train.inspect draws with.
`EVALUATE_FLAGS` are the flags of train.evaluate that the task reads, beside those named like its options. Where they
name files (`to`, `nbest`), `evaluation_files(outputs, corpus)` is what these hold.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from train import UserError
from train.data.processors import TOKENIZER


class JointLoss(NamedTuple):
    """The `loss` of a task in which the rows of a batch meet one another. Parts of a batch are not losses of their own.

    encode: (params, model, fields of a part, key) -> vectors [rows, ...] of its rows
    compare: (params, vectors [parts, rows, ...], fields [parts, rows, ...]) -> what a loss returns
    """

    encode: Callable[..., Any]
    compare: Callable[..., dict[str, Any]]

    def __call__(self, params: Any, model: Any, batch: Mapping[str, Any], key: Any) -> dict[str, Any]:
        """The loss of a batch in one part, as other tasks have it."""
        vectors, fields = jax.tree.map(lambda leaf: leaf[None], (self.encode(params, model, batch, key), dict(batch)))
        return self.compare(params, vectors, fields)


def scalar_sums(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """The sums over a batch among the outputs of a loss."""
    return {name: value for name, value in outputs.items() if getattr(value, "ndim", None) == 0}


class Prediction(NamedTuple):
    """What is predicted for an input: a line of text, and the object that stands in a .jsonl file."""

    line: str
    row: Mapping[str, Any]


def measure(task: Any, outputs: Mapping[str, Any], corpus: Any, during_training: bool = False) -> dict[str, float]:
    """The metrics of a task from sums and arrays of validation rows, `outputs`, and from these rows themselves."""
    corpus_metrics = getattr(task, "corpus_metrics", None)
    return task.metrics(outputs) | (corpus_metrics(outputs, corpus, during_training) if corpus_metrics else {})


def measure_generation(task: Any, params: Any, run: Any, corpus: Any, log: Any, **options: Any) -> dict[str, Any]:
    """The metrics of what a task that writes writes for validation rows; none of other tasks."""
    generation_metrics = getattr(task, "generation_metrics", None)
    return generation_metrics(params, run, corpus, log, **options) if generation_metrics else {}


def reads_pictures(task: Any) -> bool:
    """Whether a task reads pictures, with texts or without."""
    return task.PROCESSOR is not TOKENIZER


def refuse_pictures(run: Any, command: str):
    """Raises UserError for a run whose task reads pictures."""
    if reads_pictures(of(run)):
        raise UserError(
            f"--task={run.task.name} reads pictures, and {command} looks at tokens; look at them with train.inspect"
        )


def of(run: Any):
    """The module that trains the model of a run."""
    return find(run.task.module(run.model))


def find(name: str):
    """The module in a file of this folder, by the name of the file."""
    return importlib.import_module(f"train.tasks.{name}")
