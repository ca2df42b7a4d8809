"""Presets of models of pictures: sets of flags under a name."""

from typing import Any

from train.settings.presets.stages import MODELS

# The data and the schedule of all of them.
_TRAINING = {
    "data.field": "image",
    "data.label": "label",
    "optim.rate": 1e-3,
    "optim.schedule": "cosine",
    "optim.decay": 0.05,
}

# A pre-norm encoder of patches that classifies by the state of [CLS] (Dosovitskiy et al. 2021, section 3.1).
_VIT = {
    "model.input": "patches",
    "model.norm": "layer",
    "model.norm_eps": 1e-6,
    "model.residual": "pre",
    "model.activation": "gelu",
    "model.position": "learned",
    "model.head.dense": False,
    "model.dropout": 0.0,
}


def vit(layers: int, width: int, heads: int, **pixels) -> dict[str, Any]:
    """A ViT of some shape; `pixels` are options of its input."""
    shape = {"model.layers": layers, "model.width": width, "model.heads": heads}
    return _VIT | shape | {f"model.input.{name}": value for name, value in pixels.items()}


def _vit(layers: int, width: int, heads: int, rate: float, **pixels) -> dict[str, Any]:
    """The same with its training."""
    return _TRAINING | vit(layers, width, heads, **pixels) | {"optim.rate": rate}


# The augmentation and the schedule of Touvron et al. 2021, table 9, for photographs.
_DEIT = {
    "model.drop_path": 0.1,
    "task.pixels.resize": 256,
    "task.pixels.mean": "0.485,0.456,0.406",
    "task.pixels.std": "0.229,0.224,0.225",
    "task.pixels.resample": "bicubic",
    "task.smoothing": 0.1,
    "task.augment.flip": True,
    "task.augment.crop": 0.08,
    "task.augment.randaugment": 2,
    "task.augment.erase": 0.25,
    "task.augment.mixup": 0.8,
    "task.augment.cutmix": 1.0,
    "batch.size": 1024,
    "steps": 375_000,
    "optim.warmup": 6250,
    "optim.ema": 0.99996,
    "eval.every": 5000,
    "checkpoint.every": 5000,
}

# A small ViT for the built-in drawings: two and a half minutes on two cores.
_QUICK_DRAWINGS = {
    "model.init_std": 0.05,
    "model.scan": False,
    "batch.size": 64,
    "steps": 2800,
    "optim.warmup": 0.1,
    "optim.beta2": 0.98,
    "eval.every": 1400,
    "checkpoint.every": 1400,
}

# For small pictures from scratch.
_SMALL = {"batch.size": 128, "steps": 5000, "model.scan": False}


def _staged(name: str, resize: int = 256) -> dict[str, Any]:
    """A model in stages for photographs (Liu et al. 2021, appendix A2.1)."""
    return MODELS[name] | _TRAINING | _DEIT | {"model.drop_path": 0.2, "task.pixels.resize": resize}


# A decoder of the pixels of a picture, which are tokens of a palette, behind a start token (Chen et al. 2020).
_IMAGEGPT = {
    "model.input": "tokens",
    "model.input.token_types": None,
    "model.input.norm": False,
    "model.residual": "pre",
    "model.norm": "rms",
    "model.norm_eps": 1e-5,
    "model.activation": "quick_gelu",
    "model.position": "learned",
    "model.tie_embeddings": False,
    "model.head.input_only": 1,
    "model.head.causal": True,
    "model.head.pool": "mean",
    "model.head.dense": False,
    "model.dropout": 0.0,
}


def _imagegpt(layers: int, width: int, heads: int, rate: float, length: int = 1024) -> dict[str, Any]:
    """An ImageGPT of some shape; kernels start as their openly published code says, at 1 / sqrt(width)."""
    shape = {"model.layers": layers, "model.width": width, "model.heads": heads, "model.length": length}
    return _IMAGEGPT | _TRAINING | shape | {"model.init_std": round(width**-0.5, 4), "optim.rate": rate}


# The schedule of Chen et al. 2020, section 3.3.
_LONG = {
    "optim.beta2": 0.95,
    "optim.warmup": 10_000,
    "optim.decay": 0.01,
    "batch.size": 128,
    "steps": 1_000_000,
    "eval.every": 5000,
    "checkpoint.every": 5000,
}

# Drawings of 16 x 16 pixels in 32 colours: two to three minutes on two cores.
_QUICK_PIXELS = {
    "model.scan": False,
    "batch.size": 16,
    "steps": 800,
    "optim.warmup": 0.1,
    "optim.beta2": 0.98,
    "eval.every": 400,
    "checkpoint.every": 400,
}

_SHAPES = {
    "imagegpt-tiny": _imagegpt(4, 96, 4, rate=3e-3, length=256),
    "imagegpt-s": _imagegpt(24, 512, 8, rate=3e-3),
    "imagegpt-m": _imagegpt(36, 1024, 8, rate=3e-3),
    "imagegpt-l": _imagegpt(48, 1536, 16, rate=1e-3),
}

# Shapes: Chen et al. 2020, section 3.2.
PIXELS: dict[str, dict[str, Any]] = {
    name: shape | (_QUICK_PIXELS | {"task.colours": 32} if name == "imagegpt-tiny" else _LONG)
    for name, shape in _SHAPES.items()
}

# Shapes: Dosovitskiy et al. 2021, table 1 (B, L); Touvron et al. 2021, table 1 (Ti, S).
IMAGE: dict[str, dict[str, Any]] = {
    "vit-micro": _vit(4, 96, 4, rate=2e-3, size=32, patch=8) | _QUICK_DRAWINGS,
    "vit-tiny": _vit(6, 128, 4, rate=1e-3, size=32, patch=4) | _SMALL,
    "swin-mini": MODELS["swin-mini"] | _TRAINING | _SMALL,
    "davit-mini": MODELS["davit-mini"] | _TRAINING | _SMALL,
    "deit-ti": _vit(12, 192, 3, rate=1e-3, size=224, patch=16) | _DEIT,
    "deit-s": _vit(12, 384, 6, rate=1e-3, size=224, patch=16) | _DEIT,
    "deit-b": _vit(12, 768, 12, rate=1e-3, size=224, patch=16) | _DEIT,
    "vit-s": _vit(12, 384, 6, rate=1e-3, size=224, patch=16),
    "vit-b": _vit(12, 768, 12, rate=3e-4, size=224, patch=16),
    "vit-l": _vit(24, 1024, 16, rate=3e-4, size=224, patch=16),
    "swin-tiny": _staged("swin-tiny"),
    "swin-v2-tiny": _staged("swin-v2-tiny", resize=292),
    "davit-tiny": _staged("davit-tiny"),
    # Classifiers that start from a run of --task=pixels.
    **{name: shape | _SMALL | {"batch.size": 32, "steps": 500} for name, shape in _SHAPES.items()},
}
