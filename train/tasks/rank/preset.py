"""Presets of cross-encoders."""

from train.settings.recipes.bert import fine_tuned_bert, larger_berts
from train.settings.recipes.fields import Preset, steps

# A query, the passage that answers it, and one that does not.
LISTS = {"data.field": "query,passage,negative", "batch.size": 16}

# For the smallest BERT and the built-in questions. Tried from scratch: one layer of 64 numbers with rate=5e-3, at
# chance for 1,000 steps.
QUICK_LISTS = {
    "model.init_std": 0.1,
    "model.dropout": 0.0,
    "model.scan": False,
    "tokenizer.vocab": 4000,
    "batch.length": 48,
    "optim.beta2": 0.98,
    "task.drawn": 2,
    **steps(1500, every=500),
}

PRESETS: dict[str, Preset] = {
    "bert-tiny": fine_tuned_bert(2, 128, 2, rate=1e-3) | LISTS | QUICK_LISTS,
    **{name: preset | LISTS for name, preset in larger_berts(fine_tuned_bert).items()},
}
