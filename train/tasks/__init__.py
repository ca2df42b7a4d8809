"""One file per task, found by its name. Each module has:

`specs(run)`, `batch_spec(run)`, `PROCESSOR`   the parameters, the fields of a batch, and what turns examples into them
`load(run, log, saved, valid_only)`            the corpus
`loss`, `metrics`, `METRICS`, `baselines`      sums over a batch, means of the sums, which of them choose a checkpoint
`report`, `NEXT_COMMANDS`                      what a run prints at its end
`corpus_metrics`                               only where metrics need the validation rows, not sums alone
`generation_metrics`                           only of tasks that write: metrics of what the model writes
`draw_progress`                                only of tasks that make pictures: draws some at every evaluation

For the other commands it declares `GENERATES` ("continuation", "translation", "pictures" or ""), `PREDICT_FLAGS`,
`EVALUATE_FLAGS`, and for Hugging Face folders `HF_HEADS` (kinds of heads that it trains), `HF_TOKENS` (roles of special
tokens), `hf_run_values`, `hf_fields` and `hf_template`.

`PREDICT_FLAGS` are the flags of train.predict that the task reads, None where it predicts nothing. With them come
`inputs(options, folder)`, what to predict for, and `predict(params, folder, inputs, log, batch)`, a `Prediction` each.
`text_pool(run)`, of a task with vectors of texts of its own, is how train.embed pools states by default; else the mean.
A task whose rows are pictures has `contact_sheet(batches, corpus, rows, path)`, which train.inspect draws with.
`EVALUATE_FLAGS` are the flags of train.evaluate that the task reads, beside those named like its options. Where they
name files (`to`, `nbest`), `evaluation_files(outputs, corpus)` is what these hold.
"""

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from train import UserError
from train.data.processors import TOKENIZER


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
    """Whether a task reads pictures and no texts."""
    return task.PROCESSOR is not TOKENIZER


def refuse_pictures(task: Any, command: str):
    """Raises UserError for a task that reads no texts."""
    if reads_pictures(task):
        name = task.__name__.rpartition(".")[2]
        raise UserError(f"--task={name} reads pictures, and {command} looks at tokens; look at them with train.inspect")


def find(name: str):
    """The module of a task of `train.settings.tasks.TASKS`."""
    return importlib.import_module(f"train.tasks.{name}")
