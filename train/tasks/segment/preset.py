"""Presets of models that class pixels."""

from train.settings.recipes.fields import Preset
from train.settings.recipes.pictures import QUICK_PIXELS, TRAINING, vit

_MASKS = {**TRAINING, "data.label": "mask"}

# Shapes: Strudel et al. 2021, table 1, with random changes of half of a picture or more.
_PHOTOGRAPHS = {
    "task.augment.flip": True,
    "task.augment.crop": 0.25,
    "batch.size": 16,
    "steps": 40_000,
    "optim.rate": 1e-4,
    "eval.every": 2000,
    "checkpoint.every": 2000,
}

PRESETS: dict[str, Preset] = {
    "segment-micro": _MASKS | vit(4, 64, 4, size=32, patch=4) | QUICK_PIXELS | {"task.cells": 4},
    "segment-ti": _MASKS | vit(12, 192, 3, size=224, patch=16) | _PHOTOGRAPHS,
    "segment-s": _MASKS | vit(12, 384, 6, size=224, patch=16) | _PHOTOGRAPHS,
    "segment-b": _MASKS | vit(12, 768, 12, size=224, patch=16) | _PHOTOGRAPHS,
}
