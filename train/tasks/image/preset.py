"""Presets of classifiers of pictures."""

from train.settings.recipes.fields import Preset, model_fields
from train.settings.recipes.pictures import IMAGEGPTS, TRAINING, resnet, vit
from train.settings.recipes.stages import MODELS


def _vit(layers: int, width: int, heads: int, rate: float, **pixels) -> Preset:
    """The preset of a ViT, with the flags of its training."""
    return TRAINING | vit(layers, width, heads, **pixels) | {"optim.rate": rate}


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


# A small encoder of spectrograms for the built-in sounds: about two minutes on a core.
_SOUNDS = {
    "model.input": "frames",
    "model.input.size": 32,
    "model.input.channels": 40,
    "model.norm": "layer",
    "model.norm_eps": 1e-5,
    "model.residual": "pre",
    "model.activation": "gelu",
    "model.position": "learned",
    "model.head.dense": False,
    "model.head.pool": "mean",
    "model.dropout": 0.0,
    "task.sound.hop": 320,
    "data.field": "sound",
}


# For small pictures from scratch.
_SMALL = {"batch.size": 128, "steps": 5000, "model.scan": False}


def _staged(name: str, resize: int = 256) -> Preset:
    """A model in stages for photographs (Liu et al. 2021, appendix A2.1)."""
    return MODELS[name] | TRAINING | _DEIT | {"model.drop_path": 0.2, "task.pixels.resize": resize}


# Shapes: Dosovitskiy et al. 2021, table 1 (B, L); Touvron et al. 2021, table 1 (Ti, S).
PRESETS: dict[str, Preset] = {
    "vit-micro": _vit(4, 96, 4, rate=2e-3, size=32, patch=8) | _QUICK_DRAWINGS,
    "resnet-micro": TRAINING | resnet("16x1,32x1,64x1,128x1", 0, 96, 4, size=32) | _QUICK_DRAWINGS,
    "hybrid-micro": TRAINING | resnet("16x1,32x1,64x1,96x1", 2, 96, 4, size=32) | _QUICK_DRAWINGS,
    "sound-micro": TRAINING
    | _SOUNDS
    | model_fields(layers=3, width=96, heads=4)
    | _QUICK_DRAWINGS
    | {"steps": 1000, "optim.rate": 2e-3, "eval.every": 500, "checkpoint.every": 500},
    "video-micro": _vit(2, 64, 4, rate=3e-3, frames=8, tube=8, size=32, patch=8, cls=False)
    | _QUICK_DRAWINGS
    | {
        "model.input": "tubes",
        "model.head.pool": "mean",
        "data.field": "video",
        "steps": 900,
        "eval.every": 300,
        "checkpoint.every": 300,
    },
    "vit-tiny": _vit(6, 128, 4, rate=1e-3, size=32, patch=4) | _SMALL,
    "swin-mini": MODELS["swin-mini"] | TRAINING | _SMALL,
    "davit-mini": MODELS["davit-mini"] | TRAINING | _SMALL,
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
    **{name: shape | _SMALL | {"batch.size": 32, "steps": 500} for name, shape in IMAGEGPTS.items()},
}
