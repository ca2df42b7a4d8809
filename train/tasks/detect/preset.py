"""Presets of models that detect objects."""

from train.settings.recipes.fields import Preset
from train.settings.recipes.pictures import QUICK_PIXELS, TRAINING, vit

PRESETS: dict[str, Preset] = {
    "detect-micro": TRAINING
    | vit(3, 64, 4, size=32, patch=4, cls=False)
    | QUICK_PIXELS
    | {"task.queries": 5, "task.layers": 0},
    # Rates and clipping: Carion et al. 2020, section 4, with a ViT-S in the place of its encoder.
    "detect-s": TRAINING
    | vit(12, 384, 6, size=512, patch=16)
    | {
        "task.queries": 100,
        "task.layers": 6,
        "task.augment.flip": True,
        "task.augment.crop": 0.5,
        "optim.rate": 1e-4,
        "optim.decay": 1e-4,
        "optim.clip": 0.1,
        "batch.size": 32,
        "steps": 150_000,
        "eval.every": 5000,
        "checkpoint.every": 5000,
    },
}
