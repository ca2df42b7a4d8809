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


def _classify(layers: int, width: int, heads: int, rate: float, **others) -> dict:
    """A BERT to fine-tune: short rows, a rate that suits weights that are there already.

    The mean of all tokens stands for a text: the state of the first one means nothing before it is trained to.
    """
    return _bert(layers, width, heads, rate, pool="mean", **others) | {"batch.size": 32, "batch.length": 64}


# What teaches the smallest BERT the built-in opinions from scratch, in a minute on two cores. At twice the rate, with dropout, or with the
# first token for the text it had not learned in 1,500 steps what negation does.
_QUICK_OPINIONS = {
    "model.init_std": 0.05,
    "model.dropout": 0.0,
    "model.scan": False,
    "batch.length": 32,
    "steps": 1500,
    "eval.every": 300,
    "checkpoint.every": 300,
}

# Shapes: Devlin et al. 2018 (base, large) and Turc et al. 2019 (tiny, mini, small).
PRESETS = {
    "mlm": {
        "bert-tiny": _bert(2, 128, 2, rate=2.5e-3) | _QUICK,
        "bert-mini": _bert(4, 256, 4, rate=1e-3, scan=False),
        "bert-small": _bert(4, 512, 8, rate=5e-4),
        "bert-base": _bert(12, 768, 12, rate=1e-4),
        "bert-large": _bert(24, 1024, 16, rate=1e-4),
    },
    "classify": {
        "bert-tiny": _classify(2, 128, 2, rate=1e-3) | _QUICK_OPINIONS,
        "bert-mini": _classify(4, 256, 4, rate=3e-4, scan=False),
        "bert-small": _classify(4, 512, 8, rate=1e-4),
        "bert-base": _classify(12, 768, 12, rate=3e-5),
        "bert-large": _classify(24, 1024, 16, rate=2e-5),
    },
}


def model(name: str, **fields) -> Config:
    """The model of a preset at its published vocabulary, for use without the trainer. Raises ValueError for an unknown name."""
    known = {preset: values for presets in reversed(PRESETS.values()) for preset, values in presets.items()}
    if name not in known:
        raise ValueError(f"preset {name} is unknown{suggest(name, known)}")
    shape = {key.removeprefix("model."): value for key, value in known[name].items() if key.startswith("model.")}
    return Config(**shape | fields)
