"""Presets of models of pictures and captions: sets of flags under a name."""

from train.settings.recipes.fields import Preset
from train.tasks.captions.towers import MODELS

_COLUMNS = {"data.field": "image", "data.label": "caption"}

# The batch and the schedule of Radford et al. 2021, table 18, and the pixels of their pictures.
_CLIP = _COLUMNS | {
    "tokenizer.kind": "bpe",
    "tokenizer.vocab": 49_408,
    "task.pixels.resize": 224,
    "task.pixels.mean": "0.48145466,0.4578275,0.40821073",
    "task.pixels.std": "0.26862954,0.26130258,0.27577711",
    "task.pixels.resample": "bicubic",
    "task.augment.crop": 0.9,
    "batch.size": 32_768,
    "batch.length": 77,
    "steps": 400_000,
    "optim.rate": 5e-4,
    "optim.schedule": "cosine",
    "optim.warmup": 2000,
    "optim.beta2": 0.98,
    "optim.decay": 0.2,
    "eval.every": 5000,
    "checkpoint.every": 5000,
}

# That of Zhai et al. 2023, section 4.
_SIGLIP = _CLIP | {
    "tokenizer.kind": "unigram",
    "tokenizer.vocab": 32_000,
    "task.pixels.resize": None,
    "task.pixels.mean": "0.5",
    "task.pixels.std": "0.5",
    "batch.length": 64,
    "optim.rate": 1e-3,
    "optim.beta2": 0.95,
    "optim.decay": 1e-4,
}

# The built-in drawings: two to three minutes on two cores.
_QUICK = _COLUMNS | {
    "model.length": 16,
    "model.init_std": 0.05,
    "model.scan": False,
    "tokenizer.vocab": 1000,
    "task.candidates": 100,
    "batch.size": 64,
    "batch.length": 16,
    "steps": 1800,
    "optim.rate": 1.5e-3,
    "optim.schedule": "cosine",
    "optim.warmup": 0.1,
    "optim.beta2": 0.98,
    "optim.decay": 0.05,
    "eval.every": 900,
    "checkpoint.every": 900,
}

CAPTIONS: dict[str, Preset] = {
    "clip-tiny": MODELS["clip-tiny"] | _QUICK,
    "siglip-tiny": MODELS["siglip-tiny"] | _QUICK,
    "clip-vit-base-patch32": MODELS["clip-vit-base-patch32"] | _CLIP,
    "clip-vit-base-patch16": MODELS["clip-vit-base-patch16"] | _CLIP,
    "clip-vit-large-patch14": MODELS["clip-vit-large-patch14"] | _CLIP,
    "clip-vit-large-patch14-336": MODELS["clip-vit-large-patch14-336"] | _CLIP | {"task.pixels.resize": 336},
    "siglip-base-patch16": MODELS["siglip-base-patch16"] | _SIGLIP,
    "siglip-large-patch16-256": MODELS["siglip-large-patch16-256"] | _SIGLIP,
    "siglip-so400m-patch14-384": MODELS["siglip-so400m-patch14-384"] | _SIGLIP,
}
