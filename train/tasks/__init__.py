"""One file per task, found by its name. Its module has `specs`, `fields`, `load`, `loss`, `metrics`, `baselines`, `show`, `GOALS` and
`NEXT`; that of a task that writes has `judge` too, which finds metrics of what it writes."""

import importlib


def find(name: str):
    """The module of a task that `train.tasks.options.TASKS` lists."""
    return importlib.import_module(f"train.tasks.{name}")
