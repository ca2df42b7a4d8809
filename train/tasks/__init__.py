"""One file per task, found by its name. Each module has:

`specs(run)`, `batch_spec(run)`, `PROCESSOR`   the parameters, the fields of a batch, and what turns examples into them
`load(run, log, saved, valid_only)`            the corpus
`loss`, `metrics`, `METRICS`, `baselines`      sums over a batch, means of the sums, which of them choose a checkpoint
`report`, `NEXT_COMMANDS`                      what a run prints at its end
`generation_metrics`                           only of tasks that write: metrics of what the model writes
`text_metrics`                                 only of tasks whose metrics need the text of all rows beside `outputs`

For the other commands it declares `GENERATES` ("continuation", "translation" or ""), `PREDICT_FLAGS`,
`EVALUATE_FLAGS`, and for Hugging Face folders `HF_HEADS` (kinds of heads that it trains), `HF_TOKENS` (roles of special
tokens), `hf_run_values`, `hf_fields` and `hf_template`.

`PREDICT_FLAGS` are the flags of train.predict that the task reads, None where it predicts nothing. With them come
`inputs(options, folder)`, what to predict for, and `predict(params, folder, inputs, log, batch)`, a `Prediction` each.
`EVALUATE_FLAGS` are the flags of train.evaluate that the task reads, beside those named like its options. Where they
name files (`to`, `nbest`), `evaluation_files(outputs, corpus)` is what these hold.
"""

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple


class Prediction(NamedTuple):
    """What is predicted for an input: a line of text, and the object that stands in a .jsonl file."""

    line: str
    row: Mapping[str, Any]


def measure(task: Any, outputs: Mapping[str, Any], corpus: Any) -> dict[str, float]:
    """The metrics of a task from sums and arrays of all rows, `outputs`; with those of texts, where it has any."""
    text_metrics = getattr(task, "text_metrics", None)
    return task.metrics(outputs) | (text_metrics(outputs, corpus) if text_metrics else {})


def find(name: str):
    """The module of a task of `train.settings.tasks.TASKS`."""
    return importlib.import_module(f"train.tasks.{name}")
