"""Recurrent models, the forerunners of BERT."""

from typing import Any

from train.settings.recipes.fields import Preset


def recurrent(**fields: Any) -> Preset:
    """A model whose layers are recurrent networks and nothing else."""
    common = {"residual": "mixer_only", "position": "none", "mixer.output": False, "input.norm": False}
    return {f"model.{name}": value for name, value in (fields | common).items()} | {"optim.decay": 0.0}


# What teaches something in two minutes on two cores.
QUICK_RECURRENT = {
    "model.init_std": 0.1,
    "model.dropout": 0.0,
    "model.scan": False,
    "optim.beta2": 0.98,
    "tokenizer.vocab": 4096,
    "batch.size": 32,
    "batch.length": 32,
    "optim.rate": 4e-3,
    "steps": 700,
    "eval.every": 350,
    "checkpoint.every": 350,
}
