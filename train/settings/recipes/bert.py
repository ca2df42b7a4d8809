"""BERTs of some shape: for pre-training, and to fine-tune (Devlin et al. 2018; Turc et al. 2019)."""

from collections.abc import Callable
from typing import Any

from train.settings.recipes.fields import Preset, model_fields, phases, steps

_BERT = {"model.norm": "layer", "model.residual": "post", "model.activation": "gelu", "model.position": "learned"}


def bert(layers: int, width: int, heads: int, rate: float, **fields: Any) -> Preset:
    """A BERT of some shape; `fields` are others of the model."""
    return _BERT | model_fields(layers=layers, width=width, heads=heads, **fields) | {"optim.rate": rate}


# What teaches the smallest BERT something in two minutes on two cores: larger weights, no dropout, short rows.
QUICK = {
    "model.init_std": 0.05,
    "model.dropout": 0.0,
    "model.scan": False,
    "batch.size": 32,
    "batch.length": 32,
    "optim.beta2": 0.98,
    "optim.warmup": 0.15,
    **steps(2200, every=550),
}


# How BERT was trained (Devlin et al. 2018, appendix A.2): batches of 256 rows, a million steps, 10,000 of them of
# warm-up, rows of 128 tokens for the first 90 % and of 512 for the rest, under one rate that falls to 0.
PAPER: Preset = {
    "tokenizer.vocab": 30_522,
    "batch.size": 256,
    "batch.length": 128,
    "optim.warmup": 0.01,
    **steps(1_000_000, every=5000),
    **phases({"share": 0.9}, {"batch.length": 512}),
}


def fine_tuned_bert(layers: int, width: int, heads: int, rate: float, **fields: Any) -> Preset:
    """A BERT to fine-tune: short rows, a rate that suits weights that are there already.

    The mean of all tokens stands for a text: the state of the first one means nothing before it is trained to.
    """
    rows = {"batch.size": 32, "batch.length": 64}
    return bert(layers, width, heads, rate, **fields) | {"model.head.pool": "mean"} | rows


def larger_berts(recipe: Callable[..., Preset]) -> dict[str, Preset]:
    """The larger BERTs by a recipe for fine-tuning, with rates that suit weights that are there already."""
    return {
        "bert-mini": recipe(4, 256, 4, rate=3e-4, scan=False),
        "bert-small": recipe(4, 512, 8, rate=1e-4),
        "bert-base": recipe(12, 768, 12, rate=3e-5),
        "bert-large": recipe(24, 1024, 16, rate=2e-5),
    }
