"""What presets are made of: dotted names of flags, and their values."""

import shlex
from typing import Any

from train.settings.phases import LENGTHS

# Dotted names of flags, and their values.
Preset = dict[str, Any]


def model_fields(**fields: Any) -> Preset:
    """Dotted names of fields of the model."""
    return {f"model.{name}": value for name, value in fields.items()}


def steps(steps: int, every: int) -> Preset:
    """The steps of a run, and those between its evaluations, each with a checkpoint."""
    return {"steps": steps, "eval.every": every, "checkpoint.every": every}


def phases(*parts: Preset) -> Preset:
    """The phases of a recipe: of each its `steps`, `tokens` or `share`, and what it changes."""
    preset: Preset = {"phases": len(parts)}
    for index, part in enumerate(parts):
        changes = {name: value for name, value in part.items() if name not in LENGTHS}
        preset |= {f"phases.{index}.{name}": part.get(name) for name in LENGTHS}
        preset[f"phases.{index}.changes"] = shlex.join(f"{name}={value}" for name, value in changes.items())
    return preset
