"""Presets of taggers of words."""

from train.settings.recipes.bert import bert, larger_berts
from train.settings.recipes.fields import Preset, steps


def _tag(layers: int, width: int, heads: int, rate: float, **fields) -> Preset:
    """A BERT to fine-tune that reads words with their letter case, in the columns that data sets of entities have."""
    columns = {"data.field": "tokens", "data.label": "tags", "tokenizer.lower": False}
    rows = {"batch.size": 32, "batch.length": 128}
    return bert(layers, width, heads, rate, **fields) | columns | rows


# What teaches the smallest BERT the built-in news from scratch, in two minutes on two cores. Few pieces: then names of
# the training text are cut into pieces too, and those of new names are known.
_QUICK_NEWS = {
    "model.init_std": 0.05,
    "model.dropout": 0.0,
    "model.scan": False,
    "tokenizer.vocab": 600,
    "batch.length": 32,
    "optim.beta2": 0.98,
    **steps(1200, every=300),
}


PRESETS: dict[str, Preset] = {
    "bert-tiny": _tag(2, 128, 2, rate=2e-3) | _QUICK_NEWS,
    **larger_berts(_tag),
}
