"""Presets of forecasts."""

from train.settings.recipes.fields import Preset
from train.settings.recipes.pictures import QUICK_PIXELS, TRAINING, vit

_SERIES = {**TRAINING, "data.field": "all"}


def _patchtst(layers: int, width: int, heads: int, context: int, patch: int) -> Preset:
    """A Transformer that reads patches of one row of `context` values."""
    shape = {"size": 1, "image_width": context, "patch_height": 1, "patch": patch, "channels": 1}
    return _SERIES | vit(layers, width, heads, **shape)


PRESETS: dict[str, Preset] = {
    "patchtst-micro": _patchtst(3, 64, 4, context=96, patch=8) | QUICK_PIXELS | {"batch.size": 64},
    # The shape of Nie et al. 2023, appendix A.1.4, with patches side by side.
    "patchtst-s": _patchtst(3, 128, 16, context=336, patch=16)
    | {
        "model.ffn": 256,
        "model.dropout": 0.2,
        "task.horizon": 96,
        "batch.size": 128,
        "steps": 10_000,
        "optim.rate": 1e-4,
        "eval.every": 1000,
        "checkpoint.every": 1000,
    },
}
