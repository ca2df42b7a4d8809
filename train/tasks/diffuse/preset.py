"""Presets of masked diffusion."""

from train.settings.recipes.bert import QUICK, bert
from train.settings.recipes.fields import Preset, steps

_CHARACTERS = {"tokenizer.kind": "char", "tokenizer.vocab": 1000}

PRESETS: dict[str, Preset] = {
    "diffusion-tiny": bert(2, 128, 2, rate=2.5e-3) | QUICK | {"tokenizer.vocab": 4096} | steps(2000, every=500),
    "diffusion-char": bert(4, 128, 4, rate=2e-3) | QUICK | _CHARACTERS | {"batch.length": 64} | steps(2000, every=500),
    "diffusion-base": bert(12, 768, 12, rate=3e-4)
    | {"optim.decay": 0.0, "optim.ema": 0.9999, "optim.warmup": 2500, "batch.size": 512, "steps": 1_000_000},
}
