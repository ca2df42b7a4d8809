"""Models of texts and images, for presets: CLIP and SigLIP."""

from typing import Any

from train.settings.recipes.fields import Preset

# A pre-norm decoder whose state at the last token, [EOS], stands for a text, beside a ViT (Radford et al. 2021, section
# 2.4).
_CLIP = {
    "model.norm": "layer",
    "model.norm_eps": 1e-5,
    "model.residual": "pre",
    "model.activation": "quick_gelu",
    "model.position": "learned",
    "model.input.token_types": None,
    "model.input.norm": False,
    "model.head.causal": True,
    "model.head.pool": "last",
    "model.head.dense": False,
    "model.dropout": 0.0,
    "model.images": "tower",
    "model.images.input.bias": False,
    "model.images.input.norm": True,
}

# A pre-norm encoder, whose last state stands for a text, and attention that gathers an image; each pair is judged alone
# (Zhai et al. 2023).
_SIGLIP = _CLIP | {
    "model.norm_eps": 1e-6,
    "model.activation": "gelu_tanh",
    "model.head.causal": False,
    "model.images.input.cls": False,
    "model.images.input.bias": True,
    "model.images.input.norm": False,
    "model.images.pool": "attention",
    "model.images.loss": "sigmoid",
    "model.images.projection": None,
    "model.images.projection_bias": True,
    "model.images.reads_padding": True,
}


def _shape(layers: int, width: int, heads: int, prefix: str = "model", **fields: Any) -> Preset:
    """The sizes of a tower."""
    values = {"layers": layers, "width": width, "heads": heads, **fields}
    return {f"{prefix}.{name}": value for name, value in values.items()}


def _images(layers: int, width: int, heads: int, size: int, patch: int, **fields: Any) -> Preset:
    """The sizes of a tower of images, of images and of patches."""
    pixels = {"input.size": size, "input.patch": patch}
    return _shape(layers, width, heads, "model.images", **pixels, **fields)


def _clip(text: int, length: int, layers: int, width: int, patch: int, **fields: Any) -> Preset:
    """A CLIP with heads of 64 numbers, whose shared space is as wide as texts of 12 layers are (Radford et al. 2021,
    table 20)."""
    images = {"size": 224, "projection": text} | fields
    texts = _shape(12, text, text // 64, length=length, vocab=49408)
    return _CLIP | texts | _images(layers, width, width // 64, patch=patch, **images)


def _siglip(layers: int, width: int, heads: int, patch: int, **fields: Any) -> Preset:
    """A SigLIP, whose towers have equal sizes (Zhai et al. 2023, section 4)."""
    sizes = {"ffn": fields.pop("ffn")} if "ffn" in fields else {}
    texts = _shape(layers, width, heads, length=64, vocab=32000, **sizes)
    images = _images(layers, width, heads, patch=patch, **{"size": 224} | sizes | fields)
    return _SIGLIP | texts | images


_TINY = _shape(2, 96, 4, length=32) | _images(4, 96, 4, size=32, patch=8)

# `tiny`: for the built-in drawings.
MODELS: dict[str, Preset] = {
    "clip-tiny": _CLIP | _TINY | {"model.images.projection": 64},
    "siglip-tiny": _SIGLIP | _TINY,
    "clip-vit-base-patch32": _clip(512, 77, 12, 768, patch=32),
    "clip-vit-base-patch16": _clip(512, 77, 12, 768, patch=16),
    "clip-vit-large-patch14": _clip(768, 77, 24, 1024, patch=14),
    "clip-vit-large-patch14-336": _clip(768, 77, 24, 1024, patch=14, size=336),
    "siglip-base-patch16": _siglip(12, 768, 12, patch=16),
    "siglip-large-patch16-256": _siglip(24, 1024, 16, patch=16, size=256),
    "siglip-so400m-patch14-384": _siglip(27, 1152, 16, patch=14, size=378, ffn=4304),
}
