"""One file per task, found by its name. Its module has `specs`, `batch_spec`, `load`, `loss`, `metrics`, `baselines`, `report`, `METRICS` and
`NEXT_COMMANDS`; that of a task that writes has `generation_metrics` too, which finds metrics of what it writes.

For the other commands it declares `GENERATES` ("continuation", "translation" or ""), `CAN_PREDICT`, and for Hugging
Face folders `HF_HEADS` (kinds of heads that it trains), `HF_TOKENS` (roles of special tokens), `hf_run_values`,
`hf_fields` and `hf_template`.
"""

import importlib


def find(name: str):
    """The module of a task that `train.tasks.options.TASKS` lists."""
    return importlib.import_module(f"train.tasks.{name}")
