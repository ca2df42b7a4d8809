"""One file per task, found by its name. Each module has:

`specs(run)`, `batch_spec(run)`, `PROCESSOR`   the parameters, the fields of a batch, and what turns examples into them
`load(run, log, saved, valid_only)`            the corpus
`loss`, `metrics`, `METRICS`, `baselines`      sums over a batch, means of the sums, which of them choose a checkpoint
`report`, `NEXT_COMMANDS`                      what a run prints at its end
`generation_metrics`                           only of tasks that write: metrics of what the model writes

For the other commands it declares `GENERATES` ("continuation", "translation" or ""), `CAN_PREDICT`, and for Hugging
Face folders `HF_HEADS` (kinds of heads that it trains), `HF_TOKENS` (roles of special tokens), `hf_run_values`,
`hf_fields` and `hf_template`.
"""

import importlib


def find(name: str):
    """The module of a task of `train.settings.tasks.TASKS`."""
    return importlib.import_module(f"train.tasks.{name}")
