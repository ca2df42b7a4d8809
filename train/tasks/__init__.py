"""One file per task, found by its name. Its module has `specs`, `load`, `loss`, `metrics`, `baselines`, `show`, `GOALS` and `NEXT`."""

import importlib


def find(name: str):
    """The module of a task that `train.config.TASKS` lists."""
    return importlib.import_module(f"train.tasks.{name}")
