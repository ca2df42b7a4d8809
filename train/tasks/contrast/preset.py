"""Presets of contrastive training: of texts, and of pictures with captions."""

from train.settings.recipes.bert import fine_tuned_bert, larger_berts
from train.settings.recipes.fields import Preset, steps
from train.tasks.captions.preset import CAPTIONS

# Texts that belong together, in two columns; the mean of the tokens of a text is its vector.
SIDES = {"batch.size": 64, "data.field": "text,positive"}

# For the smallest BERT and the built-in sentences: as for its other tasks, with few shapes of batches.
QUICK_SIDES = {
    "model.init_std": 0.05,
    "model.dropout": 0.0,
    "model.scan": False,
    "tokenizer.vocab": 4000,
    "batch.length": 32,
    "batch.shapes": 4,
    "optim.beta2": 0.98,
}

# For the built-in questions.
QUICK_QUESTIONS = {
    "model.init_std": 0.1,
    "batch.shapes": 2,
    "data.field": "query,passage,negative",
    **steps(700, every=350),
}

PRESETS: dict[str, Preset] = {
    "bert-tiny": fine_tuned_bert(2, 128, 2, rate=1e-3) | SIDES | QUICK_SIDES | steps(1500, every=500),
    "bert-micro": fine_tuned_bert(1, 128, 4, rate=3e-3) | SIDES | QUICK_SIDES | QUICK_QUESTIONS,
    **{name: preset | SIDES for name, preset in larger_berts(fine_tuned_bert).items()},
    **CAPTIONS,
}
