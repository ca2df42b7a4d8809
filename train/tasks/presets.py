"""Presets: sets of flags under a name, by task. The first preset of a task is its default."""

from typing import Any

from tfm.config.model import Config
from tfm.options.dotted import override
from tfm.options.errors import suggest
from train.tasks.table import TASKS

PRESETS = {name: entry.presets for name, entry in TASKS.items()}


def model(name: str, **fields: Any) -> Config:
    """The model of a preset at its published vocabulary, with other fields by dotted name, for use without the trainer.

    Raises ValueError for an unknown name.
    """
    by_name = {preset: values for presets in reversed(PRESETS.values()) for preset, values in presets.items()}
    if name not in by_name:
        raise ValueError(f"preset {name} is unknown{suggest(name, by_name)}")
    shape = {key.removeprefix("model."): value for key, value in by_name[name].items() if key.startswith("model.")}
    return override(Config(), shape, fields)
