"""Presets of the forerunners of BERT: Skip-Thought and bidirectional language models."""

from typing import Any


def _recurrent(**fields: Any) -> dict[str, Any]:
    """A model whose layers are recurrent networks and nothing else."""
    common = {"residual": "mixer_only", "position": "none", "mixer.output": False, "input.norm": False}
    return {f"model.{name}": value for name, value in (fields | common).items()} | {"optim.decay": 0.0}


def _skip_thought(width: int, embedding: int, bidirectional: bool = False) -> dict[str, Any]:
    """One layer of GRUs; two directions have half of the units each (section 3)."""
    model = _recurrent(layers=1, width=width, heads=1, mixer="gru", **{"mixer.bidirectional": bidirectional})
    return model | {
        "model.input.width": embedding,
        "model.input.token_types": None,
        "model.head.pool": "ends" if bidirectional else "last",
    }


def _elmo(width: int, units: int, **characters: Any) -> dict[str, Any]:
    """Two layers of LSTMs, the second with a skip connection; `width` is that of a direction (bilm-tf).

    With `characters`, embeddings are computed from how tokens are spelled.
    """
    model = _recurrent(layers=2, width=2 * width, heads=1, mixer="lstm", prefix=1, residual="mixer_only")
    tokens: dict[str, Any] = {"model.input.projection": "repeat", "model.input.token_types": None}
    spelled: dict[str, Any] = {"model.input": "characters", "model.tie_embeddings": False}
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


# What teaches something in two minutes on two cores.
_QUICK = {
    "model.init_std": 0.1,
    "model.dropout": 0.0,
    "model.scan": False,
    "optim.beta2": 0.98,
    "tokenizer.vocab": 4096,
    "batch.size": 32,
    "batch.length": 32,
    "optim.rate": 4e-3,
    "steps": 700,
    "eval.every": 350,
    "checkpoint.every": 350,
}

# The recipes of the papers: 20,000 words, sentences of 30 of them, Adam, a small clip; sampled words of a large
# vocabulary.
_BOOKS = {
    "model.dropout": 0.0,
    "tokenizer.kind": "word",
    "tokenizer.vocab": 20_000,
    "batch.size": 64,
    "batch.length": 32,
    "optim.clip": 5.0,
    "optim.schedule": "constant",
    "steps": 500_000,
    "eval.every": 10_000,
    "checkpoint.every": 10_000,
}
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

FORERUNNERS: dict[str, dict[str, dict[str, Any]]] = {
    "skipthought": {
        "uni-skip-tiny": _skip_thought(256, 128) | _QUICK,
        "bi-skip-tiny": _skip_thought(256, 128, bidirectional=True) | _QUICK,
        "uni-skip": _skip_thought(2400, 620) | _BOOKS,
        "bi-skip": _skip_thought(2400, 620, bidirectional=True) | _BOOKS,
    },
    "bilm": {
        "elmo-tiny": _elmo(128, 256) | _QUICK,
        "elmo-char-tiny": _elmo(128, 256, length=12, filters="1x16,2x32,3x64,4x64") | _QUICK,
        "elmo-small": _elmo(128, 1024, length=50) | _NEWS,
        "elmo": _elmo(512, 4096, length=50) | _NEWS,
    },
}
