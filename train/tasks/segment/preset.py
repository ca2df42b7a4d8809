"""Presets of models that class pixels."""

from train.settings.recipes.fields import Preset
from train.settings.recipes.pictures import QUICK_PIXELS, TRAINING, vit
from train.settings.recipes.stages import segformer

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


# SegFormer-B0 of 512 x 512 pixels (Xie et al. 2021, section 4.1 and table 6).
_SEGFORMER_B0 = (
    segformer((2, 2, 2, 2), (32, 64, 160, 256), (1, 2, 5, 8), (8, 4, 2, 1), decoder=256, size=512, patch=4)
    | _PHOTOGRAPHS
    | {
        "model.drop_path": 0.1,
        "optim.rate": 6e-5,
        "optim.decay": 0.01,
        "optim.warmup": 1500,
        "steps": 160_000,
        "task.pixels.mean": "0.485,0.456,0.406",
        "task.pixels.std": "0.229,0.224,0.225",
    }
)

PRESETS: dict[str, Preset] = {
    "segment-micro": _MASKS | vit(4, 64, 4, size=32, patch=4) | QUICK_PIXELS | {"task.cells": 4},
    "segformer-micro": _MASKS
    | segformer((1, 1, 1), (32, 64, 96), (1, 2, 3), (4, 2, 1), decoder=64, size=32, patch=2)
    | QUICK_PIXELS
    | {"steps": 700, "eval.every": 350, "checkpoint.every": 350},
    "segment-ti": _MASKS | vit(12, 192, 3, size=224, patch=16) | _PHOTOGRAPHS,
    "segment-s": _MASKS | vit(12, 384, 6, size=224, patch=16) | _PHOTOGRAPHS,
    "segment-b": _MASKS | vit(12, 768, 12, size=224, patch=16) | _PHOTOGRAPHS,
    "segformer-b0": _MASKS | _SEGFORMER_B0,
}
