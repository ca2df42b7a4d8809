"""Presets of language models: GPT, Llama and what reads longer texts."""

from train.settings.recipes import long_texts
from train.settings.recipes.fields import Preset, model_fields, steps
from train.settings.recipes.papers import GIANTS

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


def _gpt(layers: int, width: int, heads: int, length: int, rate: float, **fields) -> Preset:
    """A GPT-2 of some shape (Radford et al. 2019, section 2.3) that reads rows of `length` tokens."""
    shape = model_fields(layers=layers, width=width, heads=heads, length=length, **fields)
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
    **steps(1300, every=650),
}


# What Llama changed of GPT: rotary positions, RMS norm, gated feed-forward layers, fewer key/value heads, no biases.
_LLAMA = {"position": "rotary", "norm": "rms", "activation": "swiglu", "bias": False, "tie_embeddings": False}


PRESETS: dict[str, Preset] = {
    "gpt-tiny": _gpt(4, 128, 4, 64, rate=4e-3) | _QUICK_GPT,
    "gpt3-tiny": _gpt(4, 128, 4, 64, rate=4e-3) | _QUICK_GPT | long_texts.alternation(window=16),
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
    **{name: _GPT | giant for name, giant in GIANTS.items()},
}
