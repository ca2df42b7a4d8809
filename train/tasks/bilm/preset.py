"""Presets of bidirectional language models (ELMo: Peters et al. 2018)."""

from typing import Any

from train.settings.recipes.fields import Preset
from train.settings.recipes.recurrent import QUICK_RECURRENT, recurrent


def _elmo(width: int, units: int, **characters: Any) -> Preset:
    """Two layers of LSTMs, the second with a skip connection; `width` is that of a direction (bilm-tf).

    With `characters`, embeddings are computed from how tokens are spelled.
    """
    model = recurrent(layers=2, width=2 * width, heads=1, mixer="lstm", prefix=1, residual="mixer_only")
    tokens: Preset = {"model.input.projection": "repeat", "model.input.token_types": None}
    spelled: Preset = {"model.input": "characters", "model.tie_embeddings": False}
    spelled |= {f"model.input.{name}": value for name, value in characters.items()}
    return model | {
        "model.mixer.bidirectional": True,
        "model.mixer.separate": True,
        "model.mixer.size": units,
        "model.mixer.projection": width,
        "model.mixer.clip": 3.0,
        "model.residual.skip": True,
        "model.prefix.0.residual": "mixer_only",
        "model.input.width": width,
        **(spelled if characters else tokens),
    }


# The recipe of the paper, with sampled words of a large vocabulary.
_NEWS = {
    "model.dropout": 0.1,
    "tokenizer.vocab": 32_768,
    "task.sampled": 8192,
    "batch.size": 128,
    "batch.length": 128,
    "optim.clip": 10.0,
    "steps": 250_000,
    "eval.every": 10_000,
    "checkpoint.every": 10_000,
}

PRESETS: dict[str, Preset] = {
    "elmo-tiny": _elmo(128, 256) | QUICK_RECURRENT,
    "elmo-char-tiny": _elmo(128, 256, length=12, filters="1x16,2x32,3x64,4x64") | QUICK_RECURRENT,
    "elmo-small": _elmo(128, 1024, length=50) | _NEWS,
    "elmo": _elmo(512, 4096, length=50) | _NEWS,
}
