"""Presets of models that answer questions."""

from train.settings.recipes.bert import bert, larger_berts
from train.settings.recipes.fields import Preset, steps


def _span(layers: int, width: int, heads: int, rate: float, **fields) -> Preset:
    """A BERT to fine-tune on SQuAD (Devlin et al. 2018, section 4.2)."""
    rows = {"batch.size": 12, "batch.length": 384}
    return bert(layers, width, heads, rate, **fields) | rows


# What teaches the smallest BERT the built-in questions from scratch, in three minutes on two cores.
_QUICK_QUESTIONS = {
    "model.init_std": 0.05,
    "model.dropout": 0.0,
    "model.scan": False,
    "batch.size": 32,
    "batch.length": 48,
    "task.stride": 16,
    **steps(1200, every=300),
}


PRESETS: dict[str, Preset] = {
    "bert-tiny": _span(2, 128, 2, rate=1e-3) | _QUICK_QUESTIONS,
    **larger_berts(_span),
}
