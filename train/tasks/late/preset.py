"""Presets of late interaction."""

from train.settings.recipes.bert import fine_tuned_bert, larger_berts
from train.settings.recipes.fields import Preset, steps

# A query, the passage that answers it, and one that does not.
LISTS = {"data.field": "query,passage,negative", "batch.size": 32}

# For the built-in questions, and weights from scratch.
QUICK_LISTS = {
    "model.init_std": 0.05,
    "model.dropout": 0.0,
    "model.scan": False,
    "tokenizer.vocab": 4000,
    "batch.length": 32,
    "batch.shapes": 2,
    "optim.beta2": 0.98,
    "task.size": 32,
    "task.query_length": 16,
    **steps(800, every=400),
}

PRESETS: dict[str, Preset] = {
    "bert-micro": fine_tuned_bert(1, 64, 4, rate=3e-3) | LISTS | QUICK_LISTS,
    "bert-tiny": fine_tuned_bert(2, 128, 2, rate=1e-3) | LISTS,
    **{name: preset | LISTS for name, preset in larger_berts(fine_tuned_bert).items()},
}
