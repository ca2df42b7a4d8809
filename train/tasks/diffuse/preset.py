"""Presets of masked diffusion."""

from train.settings.recipes.bert import bert
from train.settings.recipes.characters import CHARACTERS, windowed
from train.settings.recipes.fields import Preset, steps

PRESETS: dict[str, Preset] = {
    "diffusion-tiny": windowed(4) | CHARACTERS | steps(1000, every=500),
    "diffusion-char": windowed(8) | CHARACTERS | {"batch.size": 16, "batch.length": 64} | steps(2000, every=500),
    "diffusion-base": bert(12, 768, 12, rate=3e-4)
    | {"optim.decay": 0.0, "optim.ema": 0.9999, "optim.warmup": 2500, "batch.size": 512, "steps": 1_000_000},
}
