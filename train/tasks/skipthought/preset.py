"""Presets of Skip-Thought (Kiros et al. 2015)."""

from train.settings.recipes.fields import Preset
from train.settings.recipes.recurrent import QUICK_RECURRENT, recurrent


def _skip_thought(width: int, embedding: int, bidirectional: bool = False) -> Preset:
    """One layer of GRUs; two directions have half of the units each (section 3)."""
    model = recurrent(layers=1, width=width, heads=1, mixer="gru", **{"mixer.bidirectional": bidirectional})
    return model | {
        "model.input.width": embedding,
        "model.input.token_types": None,
        "model.head.pool": "ends" if bidirectional else "last",
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

PRESETS: dict[str, Preset] = {
    "uni-skip-tiny": _skip_thought(256, 128) | QUICK_RECURRENT,
    "bi-skip-tiny": _skip_thought(256, 128, bidirectional=True) | QUICK_RECURRENT,
    "uni-skip": _skip_thought(2400, 620) | _BOOKS,
    "bi-skip": _skip_thought(2400, 620, bidirectional=True) | _BOOKS,
}
