"""Models of pictures: ViT, and decoders of pixels that image and pixels presets share."""

from train.settings.recipes.fields import Preset

# The data and the schedule of all of them.
TRAINING = {
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


def vit(layers: int, width: int, heads: int, **pixels) -> Preset:
    """A ViT of some shape; `pixels` are options of its input."""
    shape = {"model.layers": layers, "model.width": width, "model.heads": heads}
    return _VIT | shape | {f"model.input.{name}": value for name, value in pixels.items()}


def resnet(blocks: str, layers: int, width: int, heads: int, **pixels) -> Preset:
    """A ViT of some shape over the last grid of small residual blocks (Dosovitskiy et al. 2021, section 3.1); without
    layers, a convolutional network alone. `pixels` are options of its input."""
    stem = {"stem": "small", "kind": "basic", "groups": 8, "cls": False, "blocks": blocks, **pixels}
    values = {f"model.input.{name}": value for name, value in stem.items()}
    return vit(layers, width, heads) | {"model.input": "resnet", "model.head.pool": "mean"} | values


# A small ViT with outputs for every pixel of built-in drawings: two to three minutes on a core.
QUICK_PIXELS = {
    "model.init_std": 0.05,
    "model.scan": False,
    "batch.size": 32,
    "steps": 1000,
    "optim.rate": 2e-3,
    "optim.warmup": 0.1,
    "optim.beta2": 0.98,
    "eval.every": 500,
    "checkpoint.every": 500,
}


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


def _imagegpt(layers: int, width: int, heads: int, rate: float, length: int = 1024) -> Preset:
    """An ImageGPT of some shape; kernels start as their openly published code says, at 1 / sqrt(width)."""
    shape = {"model.layers": layers, "model.width": width, "model.heads": heads, "model.length": length}
    return _IMAGEGPT | TRAINING | shape | {"model.init_std": round(width**-0.5, 4), "optim.rate": rate}


IMAGEGPTS = {
    "imagegpt-tiny": _imagegpt(4, 96, 4, rate=3e-3, length=256),
    "imagegpt-s": _imagegpt(24, 512, 8, rate=3e-3),
    "imagegpt-m": _imagegpt(36, 1024, 8, rate=3e-3),
    "imagegpt-l": _imagegpt(48, 1536, 16, rate=1e-3),
    # For 64 x 64 pixels; its rate is this project's.
    "imagegpt-xl": _imagegpt(60, 3072, 16, rate=3e-4, length=4096),
}
