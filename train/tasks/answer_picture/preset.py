"""Presets of models that answer questions about pictures."""

from train.settings.recipes.fields import Preset
from train.settings.recipes.pictures import QUICK_PIXELS, TRAINING, vit

_ANSWERS = TRAINING | {"data.field": "image,question", "data.label": "answer"}

PRESETS: dict[str, Preset] = {
    "vilt-micro": _ANSWERS
    | vit(4, 96, 4, size=32, patch=8)
    | QUICK_PIXELS
    | {
        "model.input": "tokens_and_patches",
        "model.length": 12,
        "tokenizer.vocab": 300,
        "batch.length": 12,
        "batch.size": 64,
        "steps": 2400,
        "eval.every": 1200,
        "checkpoint.every": 1200,
    },
    # Shape: Kim et al. 2021, section 4.1; the schedule of its fine-tuning for questions.
    "vilt-b32": _ANSWERS
    | vit(12, 768, 12, size=384, patch=32)
    | {
        "model.input": "tokens_and_patches",
        "model.length": 40,
        "model.head.dense": True,
        "tokenizer.vocab": 30_522,
        "task.augment.randaugment": 2,
        "batch.length": 40,
        "batch.size": 256,
        "steps": 25_000,
        "optim.rate": 1e-4,
        "optim.decay": 0.01,
        "optim.warmup": 0.1,
        "eval.every": 2500,
        "checkpoint.every": 2500,
    },
}
