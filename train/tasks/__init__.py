"""One file per task, found by its name, or as its options say (`TaskOptions.module`). Each module has:

`specs(run)`, `batch_spec(run)`, `PROCESSOR`   the parameters, the fields of a batch, and what turns examples into them
`load(run, log, saved, valid_only)`            the corpus
`loss`, `metrics`, `METRICS`, `baselines`      sums over a batch, means of the sums, which of them choose a checkpoint
`report`, `NEXT_COMMANDS`                      what a run prints at its end

What else commands ask of a task stands in `defaults`, and in its file where it has an answer of its own. With
`PREDICT_FLAGS` come `inputs(options, folder)`, what to predict for, and `predict(params, folder, inputs, log, batch)`,
a `Prediction` each. Where `EVALUATE_FLAGS` name files (`to`, `nbest`), `evaluation_files(outputs, corpus)` is what
these hold.
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
    return task.metrics(outputs) | task.corpus_metrics(outputs, corpus, during_training)


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
