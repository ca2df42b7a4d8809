"""Presets: sets of flags under a name, by task. The first preset of a task is its default."""

from tfm.config import Config, suggest

_BERT = {"norm": "layer", "order": "post", "activation": "gelu", "position": "learned"}


def _bert(layers: int, width: int, heads: int, rate: float, **others) -> dict:
    shape = _BERT | {"layers": layers, "width": width, "heads": heads} | others
    return {f"model.{name}": value for name, value in shape.items()} | {"optim.rate": rate}


# What makes the smallest BERT learn something in two minutes on two cores: larger initial weights, no dropout, short rows.
_QUICK = {
    "model.init_std": 0.05,
    "model.dropout": 0.0,
    "model.scan": False,
    "batch.size": 32,
    "batch.length": 32,
    "optim.beta2": 0.98,
    "optim.warmup": 0.15,
    "steps": 2200,
    "eval.every": 550,
    "checkpoint.every": 550,
}

# Shapes: Devlin et al. 2018 (base, large) and Turc et al. 2019 (tiny, mini, small).
PRESETS = {
    "mlm": {
        "bert-tiny": _bert(2, 128, 2, rate=2.5e-3) | _QUICK,
        "bert-mini": _bert(4, 256, 4, rate=1e-3),
        "bert-small": _bert(4, 512, 8, rate=5e-4),
        "bert-base": _bert(12, 768, 12, rate=1e-4),
        "bert-large": _bert(24, 1024, 16, rate=1e-4),
    },
}


def model(name: str, **fields) -> Config:
    """The model of a preset at its published vocabulary, for use without the trainer. Raises ValueError for an unknown name."""
    known = {preset: values for presets in PRESETS.values() for preset, values in presets.items()}
    if name not in known:
        raise ValueError(f"preset {name} is unknown{suggest(name, known)}")
    shape = {key.removeprefix("model."): value for key, value in known[name].items() if key.startswith("model.")}
    return Config(**shape | fields)
