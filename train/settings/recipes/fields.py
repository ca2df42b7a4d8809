"""What presets are made of: dotted names of flags, and their values."""

from typing import Any

# Dotted names of flags, and their values.
Preset = dict[str, Any]


def model_fields(**fields: Any) -> Preset:
    """Dotted names of fields of the model."""
    return {f"model.{name}": value for name, value in fields.items()}


def steps(steps: int, every: int) -> Preset:
    """The steps of a run, and those between its evaluations, each with a checkpoint."""
    return {"steps": steps, "eval.every": every, "checkpoint.every": every}
