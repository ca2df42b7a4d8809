"""Presets of models that restore pictures."""

from train.settings.recipes.fields import Preset
from train.settings.recipes.pictures import QUICK_PIXELS, TRAINING, vit


def _micro(kind: str, size: int, patch: int) -> Preset:
    """A small model for the built-in drawings."""
    return TRAINING | vit(4, 64, 4, size=size, patch=patch) | QUICK_PIXELS | {"task.kind": kind}


PRESETS: dict[str, Preset] = {
    "upscale-micro": _micro("upscale", size=16, patch=2),
    "colour-micro": _micro("colour", size=32, patch=4),
    # A rectangle often hides a shape of which nothing can be known; of patches something is left to go by.
    "holes-micro": _micro("holes", size=32, patch=4)
    | {
        "task.shape": "patches",
        "task.share": 0.5,
        "steps": 1500,
        "eval.every": 750,
        "checkpoint.every": 750,
    },
    # A ViT-S to go on from, by the recipe of Xie et al. 2022, section 4.1.2.
    "holes-s": TRAINING
    | vit(12, 384, 6, size=224, patch=16)
    | {
        "task.kind": "holes",
        "task.shape": "patches",
        "task.share": 0.6,
        "task.augment.flip": True,
        "task.augment.crop": 0.67,
        "optim.rate": 8e-4,
        "batch.size": 2048,
        "steps": 62_500,
        "optim.warmup": 6250,
        "eval.every": 5000,
        "checkpoint.every": 5000,
    },
}
