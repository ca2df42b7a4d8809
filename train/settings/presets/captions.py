"""Presets of models of pictures and captions: sets of flags under a name."""

from typing import Any

from train.settings.towers import MODELS

# Adam and a batch as Radford et al. 2021, tables 18 and 20.
_TRAINING = {
    "data.field": "image",
    "data.label": "caption",
    "optim.schedule": "cosine",
    "optim.rate": 5e-4,
    "optim.beta2": 0.98,
    "optim.decay": 0.2,
    "optim.warmup": 2000,
    "tokenizer.kind": "bpe",
    "tokenizer.vocab": 49_408,
    "task.augment.crop": 0.9,
    "task.pixels.mean": "0.481,0.458,0.408",
    "task.pixels.std": "0.269,0.261,0.276",
    "task.pixels.resample": "bicubic",
    "batch.size": 32_768,
    "steps": 400_000,
    "eval.every": 5000,
    "checkpoint.every": 5000,
}

# The built-in drawings: two to three minutes on two cores.
_QUICK_CAPTIONS = {
    "data.field": "image",
    "data.label": "caption",
    "model.init_std": 0.05,
    "model.scan": False,
    "task.candidates": 100,
    "tokenizer.vocab": 1000,
    "batch.size": 128,
    "batch.length": 16,
    "steps": 1500,
    "optim.rate": 2e-3,
    "optim.schedule": "cosine",
    "optim.warmup": 0.1,
    "optim.beta2": 0.98,
    "optim.decay": 0.05,
    "eval.every": 500,
    "checkpoint.every": 500,
}

CAPTIONS: dict[str, dict[str, Any]] = {
    name: shape | (_QUICK_CAPTIONS if name.endswith("tiny") else _TRAINING | {"batch.length": shape["model.length"]})
    for name, shape in MODELS.items()
}
