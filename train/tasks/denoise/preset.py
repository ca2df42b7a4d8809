"""Presets of denoising: T5 in several sizes, and BART."""

from train.settings.recipes.fields import Preset, model_fields, steps
from train.settings.recipes.pairs import t5

_SENTINELS = {"tokenizer.kind": "bpe", "tokenizer.sentinels": 100}

# What teaches the smallest T5 something in two minutes on two cores: an output table of its own, no dropout, short
# rows.
_QUICK = {
    "model.tie_embeddings": False,
    "model.head.scale_logits": False,
    "model.init_std": 0.05,
    "model.dropout": 0.0,
    "model.scan": False,
    "tokenizer.kind": "wordpiece",
    "tokenizer.vocab": 4096,
    "batch.size": 16,
    "batch.length": 64,
    "optim.name": "muon",
    "optim.rate": 3e-3,
    "optim.beta2": 0.98,
    "optim.warmup": 0.1,
    **steps(1300, every=650),
}

# The recipe of T5 (Raffel et al. 2020, section 3.1), whose rate falls with the root of the step.
_T5 = _SENTINELS | {
    "tokenizer.vocab": 32_000,
    "batch.size": 128,
    "batch.length": 512,
    "optim.name": "adafactor",
    "optim.rate": 1e-2,
    "optim.schedule": "noam",
    "optim.warmup": 10_000,
    "steps": 524_288,
    "eval.every": 5000,
    "checkpoint.every": 5000,
}

# BART and its noise (Lewis et al. 2020, sections 2 and 5.1), in batches of 8,000 texts. The rate and its warm-up are
# this project's.
_BART = {
    "model.input": "tokens",
    "model.input.token_types": None,
    "model.norm": "layer",
    "model.norm_eps": 1e-5,
    "model.residual": "post",
    "model.activation": "gelu",
    "model.position": "learned",
    "model.length": 1024,
    "model.head.output_bias": True,
    "task.noise": "infilling",
    "task.permute": True,
    "task.rate": 0.3,
    "tokenizer.kind": "bpe",
    "tokenizer.lower": False,
    "tokenizer.vocab": 50_265,
    "batch.size": 8000,
    "batch.length": 512,
    "optim.rate": 4e-4,
    "optim.warmup": 0.06,
    "steps": 500_000,
    "eval.every": 5000,
    "checkpoint.every": 5000,
}

PRESETS: dict[str, Preset] = {
    "t5-tiny": t5(2, 128, 4) | _SENTINELS | _QUICK,
    "t5-small": t5(6, 512, 8) | _T5,
    "t5-base": t5(12, 768, 12) | _T5 | model_fields(ffn=3072),
    "bart-base": _BART | model_fields(layers=6, width=768, heads=12, ffn=3072),
}
