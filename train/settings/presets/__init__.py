"""Presets: sets of flags under a name, by task. The first preset of a task is its default."""

from collections.abc import Callable
from typing import Any

from tfm.config.model import Config
from tfm.options.choices import suggest
from tfm.options.dotted import override
from train.settings.contrast import QUICK_SIDES, SIDES
from train.settings.presets import long_texts
from train.settings.presets.captions import CAPTIONS
from train.settings.presets.forerunners import FORERUNNERS
from train.settings.presets.images import IMAGE, PIXELS

_BERT = {"model.norm": "layer", "model.residual": "post", "model.activation": "gelu", "model.position": "learned"}


def _model(**fields) -> dict[str, Any]:
    """Dotted names of fields of the model."""
    return {f"model.{name}": value for name, value in fields.items()}


def _steps(steps: int, every: int) -> dict[str, Any]:
    """The steps of a run, and those between its evaluations, each with a checkpoint."""
    return {"steps": steps, "eval.every": every, "checkpoint.every": every}


def _bert(layers: int, width: int, heads: int, rate: float, **fields) -> dict[str, Any]:
    return _BERT | _model(layers=layers, width=width, heads=heads, **fields) | {"optim.rate": rate}


# What teaches the smallest BERT something in two minutes on two cores: larger weights, no dropout, short rows.
_QUICK = {
    "model.init_std": 0.05,
    "model.dropout": 0.0,
    "model.scan": False,
    "batch.size": 32,
    "batch.length": 32,
    "optim.beta2": 0.98,
    "optim.warmup": 0.15,
    **_steps(2200, every=550),
}


def _classify(layers: int, width: int, heads: int, rate: float, **fields) -> dict[str, Any]:
    """A BERT to fine-tune: short rows, a rate that suits weights that are there already.

    The mean of all tokens stands for a text: the state of the first one means nothing before it is trained to.
    """
    rows = {"batch.size": 32, "batch.length": 64}
    return _bert(layers, width, heads, rate, **fields) | {"model.head.pool": "mean"} | rows


def _choice(layers: int, width: int, heads: int, rate: float, **fields) -> dict[str, Any]:
    """The same for multiple choice: a row holds several pairs, so fewer rows fit."""
    return _classify(layers, width, heads, rate, **fields) | {"batch.size": 16, "batch.length": 128}


# What teaches the smallest BERT the built-in opinions from scratch, in a minute on two cores. Tried: twice the rate,
# dropout, head.pool=first (M35: negation is not learned).
_QUICK_OPINIONS = {
    "model.init_std": 0.05,
    "model.dropout": 0.0,
    "model.scan": False,
    "batch.length": 32,
    **_steps(1500, every=300),
}

# What teaches a BERT of one layer the built-in continuations from scratch. For the first 250 steps it is at chance.
# Tried: bert-tiny with init_std=0.05, at chance for 600 steps.
_QUICK_CONTINUATIONS = {
    "model.init_std": 0.1,
    "model.dropout": 0.0,
    "model.scan": False,
    "batch.length": 36,
    "optim.beta2": 0.98,
    **_steps(3600, every=900),
}


def _tag(layers: int, width: int, heads: int, rate: float, **fields) -> dict[str, Any]:
    """A BERT to fine-tune that reads words with their letter case, in the columns that data sets of entities have."""
    columns = {"data.field": "tokens", "data.label": "tags", "tokenizer.lower": False}
    rows = {"batch.size": 32, "batch.length": 128}
    return _bert(layers, width, heads, rate, **fields) | columns | rows


# What teaches the smallest BERT the built-in news from scratch, in two minutes on two cores. Few pieces: then names of
# the training text are cut into pieces too, and those of new names are known.
_QUICK_NEWS = {
    "model.init_std": 0.05,
    "model.dropout": 0.0,
    "model.scan": False,
    "tokenizer.vocab": 600,
    "batch.length": 32,
    "optim.beta2": 0.98,
    **_steps(1200, every=300),
}


def _span(layers: int, width: int, heads: int, rate: float, **fields) -> dict[str, Any]:
    """A BERT to fine-tune on SQuAD (Devlin et al. 2018, section 4.2)."""
    rows = {"batch.size": 12, "batch.length": 384}
    return _bert(layers, width, heads, rate, **fields) | rows


# What teaches the smallest BERT the built-in questions from scratch, in three minutes on two cores.
_QUICK_QUESTIONS = {
    "model.init_std": 0.05,
    "model.dropout": 0.0,
    "model.scan": False,
    "batch.size": 32,
    "batch.length": 48,
    "task.stride": 16,
    **_steps(1200, every=300),
}

_GPT = {
    "model.norm": "layer",
    "model.norm_eps": 1e-5,
    "model.residual": "pre",
    "model.activation": "gelu_tanh",
    "model.position": "learned",
    "model.input.token_types": None,
    "model.input.norm": False,
    "tokenizer.kind": "bpe",
    "optim.decay": 0.1,
    "optim.beta2": 0.99,
    "optim.schedule": "cosine",
}


def _gpt(layers: int, width: int, heads: int, length: int, rate: float, **fields) -> dict[str, Any]:
    """A GPT-2 of some shape (Radford et al. 2019, section 2.3) that reads rows of `length` tokens."""
    shape = _model(layers=layers, width=width, heads=heads, length=length, **fields)
    return _GPT | shape | {"batch.length": length, "optim.rate": rate}


# The vocabulary of GPT-2; its own tokenizer comes with --tokenizer.path.
_WEB = {
    "tokenizer.vocab": 50257,
    "batch.size": 8,
    "steps": 100_000,
    "optim.warmup": 2000,
    "eval.every": 2000,
    "checkpoint.every": 2000,
}

_CHARACTERS = {"tokenizer.kind": "char", "task.windows": True, "tokenizer.vocab": 1000}

# What teaches the smallest GPT something in two minutes on two cores.
_QUICK_GPT = {
    "model.init_std": 0.05,
    "model.dropout": 0.0,
    "model.scan": False,
    "tokenizer.vocab": 4096,
    "batch.size": 16,
    **_steps(1300, every=650),
}

# What Llama changed of GPT: rotary positions, RMS norm, gated feed-forward layers, fewer key/value heads, no biases.
_LLAMA = {"position": "rotary", "norm": "rms", "activation": "swiglu", "bias": False, "tie_embeddings": False}

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


def _transformer(layers: int, width: int, heads: int, ffn: int, rate: float, **fields) -> dict[str, Any]:
    """The first Transformer in some shape (Vaswani et al. 2017, table 3)."""
    shape = _model(layers=layers, width=width, heads=heads, ffn=ffn, init_std=round(width**-0.5, 4), **fields)
    return _TRANSFORMER | shape | {"optim.rate": rate}


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
    **_steps(580, every=290),
    "task.bleu": 50,
}


def _fine_tuned(recipe: Callable[..., dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The larger BERTs by a recipe for fine-tuning, with rates that suit weights that are there already."""
    return {
        "bert-mini": recipe(4, 256, 4, rate=3e-4, scan=False),
        "bert-small": recipe(4, 512, 8, rate=1e-4),
        "bert-base": recipe(12, 768, 12, rate=3e-5),
        "bert-large": recipe(24, 1024, 16, rate=2e-5),
    }


# Shapes: Devlin et al. 2018 (base, large) and Turc et al. 2019 (tiny, mini, small); Radford et al. 2019, table 2, and
# Brown et al. 2020, table 2.1; Touvron et al. 2023 (Llama 2), table 1; gpt-char and gpt-char-gpu are those of nanoGPT.
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "mlm": {
        "bert-tiny": _bert(2, 128, 2, rate=2.5e-3) | _QUICK,
        **{name: _bert(2, 128, 2, rate=2.5e-3) | _QUICK | fields for name, fields in long_texts.LONG_ROWS.items()},
        "bert-mini": _bert(4, 256, 4, rate=1e-3, scan=False),
        "bert-small": _bert(4, 512, 8, rate=5e-4),
        "bert-base": _bert(12, 768, 12, rate=1e-4),
        "bert-large": _bert(24, 1024, 16, rate=1e-4),
        "longformer-base": _bert(12, 768, 12, rate=3e-5) | long_texts.LONGFORMER,
        "bigbird-base": _bert(12, 768, 12, rate=1e-4) | long_texts.BIGBIRD,
    },
    "lm": {
        "gpt-tiny": _gpt(4, 128, 4, 64, rate=4e-3) | _QUICK_GPT,
        "gpt3-tiny": _gpt(4, 128, 4, 64, rate=4e-3) | _QUICK_GPT | long_texts.ALTERNATION,
        "longformer-tiny": _gpt(4, 128, 4, 64, rate=4e-3) | _QUICK_GPT | long_texts.GROWING_WINDOWS,
        "transformer-xl-tiny": _gpt(4, 128, 4, 64, rate=4e-3, position="transformer_xl")
        | _QUICK_GPT
        | {"task.windows": True, "task.memory": 64},
        "performer-tiny": _gpt(4, 128, 4, 64, rate=4e-3) | _QUICK_GPT | long_texts.PERFORMER,
        "linear-tiny": _gpt(4, 128, 4, 64, rate=4e-3) | _QUICK_GPT | long_texts.LINEAR,
        "reformer-tiny": _gpt(4, 128, 4, 256, rate=4e-3) | _QUICK_GPT | long_texts.REFORMER | {"batch.size": 4},
        "llama-tiny": _gpt(4, 128, 4, 64, rate=4e-3, kv_heads=2, ffn=344, **_LLAMA) | _QUICK_GPT,
        "llama-7b": _gpt(32, 4096, 32, 4096, rate=3e-4, ffn=11008, dropout=0.0, **_LLAMA)
        | _WEB
        | {"tokenizer.vocab": 32000},
        "gpt-char": _gpt(4, 128, 4, 64, rate=4e-3, init_std=0.05, dropout=0.0, scan=False)
        | _CHARACTERS
        | {"batch.size": 12, "steps": 2000},
        "gpt-char-gpu": _gpt(6, 384, 6, 256, rate=1e-3, dropout=0.2) | _CHARACTERS | {"batch.size": 64, "steps": 5000},
        "gpt2": _gpt(12, 768, 12, 1024, rate=6e-4) | _WEB,
        "gpt2-medium": _gpt(24, 1024, 16, 1024, rate=3e-4) | _WEB,
        "gpt2-large": _gpt(36, 1280, 20, 1024, rate=2.5e-4) | _WEB,
        "gpt2-xl": _gpt(48, 1600, 25, 1024, rate=2e-4) | _WEB,
        "gpt3-175b": _gpt(96, 12288, 96, 2048, rate=6e-5) | _WEB,
    },
    "translate": {
        "transformer-mini": _transformer(2, 128, 4, 256, rate=4e-3, dropout=0.0) | _QUICK_PAIRS,
        "transformer-tiny": _transformer(4, 128, 4, 256, rate=3e-3, dropout=0.3, scan=False),
        "transformer-base": _transformer(6, 512, 8, 2048, rate=7e-4, dropout=0.1),
        "transformer-big": _transformer(6, 1024, 16, 4096, rate=5e-4, dropout=0.3),
    },
    "classify": {
        "bert-tiny": _classify(2, 128, 2, rate=1e-3) | _QUICK_OPINIONS,
        **_fine_tuned(_classify),
        **{
            name: _classify(2, 128, 2, rate=1e-3) | _QUICK_OPINIONS | fields
            for name, fields in long_texts.SHORT_ROWS.items()
        },
        "longformer-base": _classify(12, 768, 12, rate=3e-5) | long_texts.LONGFORMER,
        "bigbird-base": _classify(12, 768, 12, rate=3e-5) | long_texts.BIGBIRD,
    },
    "choice": {
        "bert-micro": _choice(1, 64, 2, rate=5e-3) | _QUICK_CONTINUATIONS,
        "bert-tiny": _choice(2, 128, 2, rate=1e-3),
        **_fine_tuned(_choice),
    },
    "tag": {
        "bert-tiny": _tag(2, 128, 2, rate=2e-3) | _QUICK_NEWS,
        **_fine_tuned(_tag),
    },
    "span": {
        "bert-tiny": _span(2, 128, 2, rate=1e-3) | _QUICK_QUESTIONS,
        **_fine_tuned(_span),
    },
    "contrast": {
        "bert-tiny": _classify(2, 128, 2, rate=1e-3) | SIDES | QUICK_SIDES | _steps(1500, every=500),
        **{name: preset | SIDES for name, preset in _fine_tuned(_classify).items()},
        **CAPTIONS,
    },
    "image": IMAGE,
    "pixels": PIXELS,
} | FORERUNNERS


def model(name: str, **fields) -> Config:
    """The model of a preset at its published vocabulary, with other fields by dotted name, for use without the trainer.

    Raises ValueError for an unknown name.
    """
    by_name = {preset: values for presets in reversed(PRESETS.values()) for preset, values in presets.items()}
    if name not in by_name:
        raise ValueError(f"preset {name} is unknown{suggest(name, by_name)}")
    shape = {key.removeprefix("model."): value for key, value in by_name[name].items() if key.startswith("model.")}
    return override(Config(), shape, fields)
