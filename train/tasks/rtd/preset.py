"""Presets of replaced-token detection: ELECTRA, and DeBERTa-v3."""

from train.settings.recipes.bert import bert
from train.settings.recipes.characters import CHARACTERS, windowed
from train.settings.recipes.fields import Preset, steps

# The recipe of ELECTRA (Clark et al. 2020, table 6).
_ELECTRA = {
    "tokenizer.vocab": 30_522,
    "batch.size": 128,
    "batch.length": 128,
    "optim.warmup": 10_000,
    "steps": 1_000_000,
    "eval.every": 5000,
    "checkpoint.every": 5000,
}

# A generator that sees neighbours alone: what it writes can be told in short runs.
_WEAK = {"task.generator_width": 16, "task.generator_layers": 1, "task.rate": 0.2}

# Disentangled attention over 256 buckets a side, and no types of tokens (He et al. 2023, section 4).
_DEBERTA_V3 = {
    "model.input.token_types": None,
    "model.input.projection": "first",
    "model.position": "disentangled",
    "model.position.share_projections": True,
    "model.position.norm": True,
    "model.norm_eps": 1e-7,
    "task.masking": "windows",
    "task.embeddings": "offset",
    "tokenizer.kind": "unigram",
    "tokenizer.lower": False,
    "tokenizer.vocab": 128_000,
    "batch.size": 256,
    "batch.length": 512,
    "steps": 1_000_000,
}

PRESETS: dict[str, Preset] = {
    "electra-tiny": windowed(4) | CHARACTERS | _WEAK | steps(1000, every=500),
    "electra-small": bert(12, 256, 4, rate=5e-4) | _ELECTRA | {"model.input.width": 128},
    "electra-base": bert(12, 768, 12, rate=2e-4)
    | _ELECTRA
    | {"task.generator_width": 256, "batch.size": 256, "batch.length": 512, "steps": 766_000},
    "deberta-v3-small": bert(6, 768, 12, rate=1e-4)
    | _ELECTRA
    | _DEBERTA_V3
    | {"task.generator_width": 768, "task.generator_layers": 3},
}
