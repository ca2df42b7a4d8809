"""Presets of multiple choice."""

from train.settings.recipes.bert import fine_tuned_bert, larger_berts
from train.settings.recipes.fields import Preset, steps


def _choice(layers: int, width: int, heads: int, rate: float, **fields) -> Preset:
    """The preset of a BERT for multiple choice: a row holds several pairs, so fewer rows fit."""
    return fine_tuned_bert(layers, width, heads, rate, **fields) | {"batch.size": 16, "batch.length": 128}


# What teaches a BERT of one layer the built-in continuations from scratch. For the first 250 steps it is at chance.
# Tried: bert-tiny with init_std=0.05, at chance for 600 steps.
_QUICK_CONTINUATIONS = {
    "model.init_std": 0.1,
    "model.dropout": 0.0,
    "model.scan": False,
    "batch.length": 36,
    "optim.beta2": 0.98,
    **steps(3600, every=900),
}


PRESETS: dict[str, Preset] = {
    "bert-micro": _choice(1, 64, 2, rate=5e-3) | _QUICK_CONTINUATIONS,
    "bert-tiny": _choice(2, 128, 2, rate=1e-3),
    **larger_berts(_choice),
}
