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


# Whisper (Radford et al. 2022, section 2.2 and table 1): frames on one side, a decoder of texts on the other.
_WHISPER = {
    "model.encoder.input": "frames",
    "model.encoder.input.mask_padding": False,
    "model.norm": "layer",
    "model.norm_eps": 1e-5,
    "model.residual": "pre",
    "model.activation": "gelu",
    "model.mixer.key_bias": False,
    "model.position": "learned",
    "model.input.token_types": None,
    "model.input.norm": False,
    "model.dropout": 0.0,
    "tokenizer.kind": "bpe",
    "data.field": "sound,text",
    "optim.beta2": 0.98,
}


def _whisper(layers: int, width: int, heads: int, rate: float, **fields) -> Preset:
    """Whisper in some shape."""
    return _WHISPER | model_fields(layers=layers, width=width, heads=heads, **fields) | {"optim.rate": rate}


# What teaches a small one the built-in strings of digits in about three minutes on a core.
_QUICK_SOUNDS = {
    "model.encoder.input.size": 50,
    "model.encoder.input.channels": 40,
    "model.scan": False,
    "model.init_std": 0.05,
    "task.sound.window": 800,
    "task.sound.hop": 640,
    "task.beams": 1,
    "task.bleu": 50,
    "tokenizer.kind": "word",
    "batch.size": 32,
    "batch.length": 8,
    "optim.schedule": "cosine",
    "optim.warmup": 0.1,
    **steps(1500, every=500),
}


PRESETS: dict[str, Preset] = {
    "transformer-mini": _transformer(2, 128, 4, 256, rate=4e-3, dropout=0.0) | _QUICK_PAIRS,
    "transformer-tiny": _transformer(4, 128, 4, 256, rate=3e-3, dropout=0.3, scan=False),
    "transformer-base": _transformer(6, 512, 8, 2048, rate=7e-4, dropout=0.1) | _published(100_000),
    "whisper-micro": _whisper(2, 96, 4, rate=2e-3, length=16) | _QUICK_SOUNDS,
    "whisper-tiny": _whisper(4, 384, 6, rate=1.5e-3, length=448) | {"batch.length": 448, "steps": 100_000},
    "whisper-base": _whisper(6, 512, 8, rate=1e-3, length=448) | {"batch.length": 448, "steps": 100_000},
    "transformer-big": _transformer(6, 1024, 16, 4096, rate=5e-4, dropout=0.3) | _published(300_000),
}
