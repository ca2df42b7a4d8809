"""Presets of models of pixels (Chen et al. 2020)."""

from train.settings.recipes.fields import Preset
from train.settings.recipes.pictures import IMAGEGPTS

# The schedule of Chen et al. 2020, section 3.3.
_LONG = {
    "optim.beta2": 0.95,
    "optim.warmup": 10_000,
    "optim.decay": 0.01,
    "batch.size": 128,
    "steps": 1_000_000,
    "eval.every": 5000,
    "checkpoint.every": 5000,
}


# Drawings of 16 x 16 pixels in 32 colours: two to three minutes on two cores.
_QUICK_PIXELS = {
    "model.scan": False,
    "batch.size": 16,
    "steps": 800,
    "optim.warmup": 0.1,
    "optim.beta2": 0.98,
    "eval.every": 400,
    "checkpoint.every": 400,
}


# Shapes: Chen et al. 2020, section 3.2.
PRESETS: dict[str, Preset] = {
    name: shape | (_QUICK_PIXELS | {"task.colours": 32} if name == "imagegpt-tiny" else _LONG)
    for name, shape in IMAGEGPTS.items()
}
