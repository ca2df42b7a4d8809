"""Presets of translation models."""

from train.settings.recipes.fields import Preset, model_fields, steps

_TRANSFORMER = {
    "model.norm": "layer",
    "model.norm_eps": 1e-5,
    "model.residual": "post",
    "model.activation": "relu",
    "model.position": "sinusoidal",
    "model.input.token_types": None,
    "model.input.norm": False,
    "model.input.scale": True,
    "tokenizer.kind": "bpe",
    "optim.schedule": "noam",
    "optim.beta2": 0.98,
    "optim.eps": 1e-9,
    "batch.tokens": 4096,
    "batch.length": 128,
}


def _transformer(layers: int, width: int, heads: int, ffn: int, rate: float, **fields) -> Preset:
    """The first Transformer in some shape (Vaswani et al. 2017, table 3)."""
    shape = model_fields(layers=layers, width=width, heads=heads, ffn=ffn, init_std=round(width**-0.5, 4), **fields)
    return _TRANSFORMER | shape | {"optim.rate": rate}


def _published(steps_in_all: int) -> Preset:
    """How both sizes were trained (Vaswani et al. 2017, sections 5.1 and 5.3)."""
    rows = {"batch.tokens": 25_000, "tokenizer.vocab": 37_000, "optim.warmup": 4000}
    return rows | steps(steps_in_all, every=1000)


# What teaches a small translator the built-in grammar in two minutes on two cores:
# no dropout, whole words, a rate that ends at 0.
_QUICK_PAIRS = {
    "model.scan": False,
    "tokenizer.vocab": 4000,
    "batch.tokens": 2048,
    "batch.length": 32,
    "batch.shapes": 6,
    "optim.schedule": "linear",
    "optim.warmup": 0.25,
    **steps(580, every=290),
    "task.bleu": 50,
}


PRESETS: dict[str, Preset] = {
    "transformer-mini": _transformer(2, 128, 4, 256, rate=4e-3, dropout=0.0) | _QUICK_PAIRS,
    "transformer-tiny": _transformer(4, 128, 4, 256, rate=3e-3, dropout=0.3, scan=False),
    "transformer-base": _transformer(6, 512, 8, 2048, rate=7e-4, dropout=0.1) | _published(100_000),
    "transformer-big": _transformer(6, 1024, 16, 4096, rate=5e-4, dropout=0.3) | _published(300_000),
}
