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
from collections.abc import Mapping
from typing import Any, NamedTuple


class Prediction(NamedTuple):
    """What is predicted for an input: a line of text, and the object that stands in a .jsonl file."""

    line: str
    row: Mapping[str, Any]


def measure(task: Any, outputs: Mapping[str, Any], corpus: Any, during_training: bool = False) -> dict[str, float]:
    """The metrics of a task from sums and arrays of validation rows, `outputs`, and from these rows themselves."""
    return task.metrics(outputs) | task.corpus_metrics(outputs, corpus, during_training)


def of(run: Any):
    """The module that trains the model of a run."""
    return find(run.task.module(run.model))


def find(name: str):
    """The module in a file of this folder, by the name of the file."""
    return importlib.import_module(f"train.tasks.{name}")
