"""Presets of cross-encoders."""

from train.settings.recipes.bert import fine_tuned_bert, larger_berts
from train.settings.recipes.fields import Preset, steps

# A query, the passage that answers it, and one that does not.
LISTS = {"data.field": "query,passage,negative", "batch.size": 16}

# For built-in questions, and weights from scratch: at chance for some 550 steps.
QUICK_LISTS = {
    "model.init_std": 0.1,
    "model.dropout": 0.0,
    "model.scan": False,
    "tokenizer.vocab": 4000,
    "batch.length": 40,
    "optim.beta2": 0.98,
    "data.field": "query,passage",
    "task.kind": "softmax",
    "task.drawn": 3,
    **steps(2000, every=500),
}

PRESETS: dict[str, Preset] = {
    "bert-micro": fine_tuned_bert(1, 64, 4, rate=3e-3) | QUICK_LISTS,
    "bert-tiny": fine_tuned_bert(2, 128, 2, rate=3e-4) | LISTS,
    **{name: preset | LISTS for name, preset in larger_berts(fine_tuned_bert).items()},
}
