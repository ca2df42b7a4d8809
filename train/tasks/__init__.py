"""One file per task, found by its name. A task module has `specs`, `load`, `loss`, `metrics` and `show`."""

import importlib


def find(name: str):
    """The module of a task that `train.config.TASKS` lists."""
    return importlib.import_module(f"train.tasks.{name}")
