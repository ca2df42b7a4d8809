"""Models of images in stages, for presets: Swin, Swin V2, DaViT and SegFormer."""

from collections.abc import Sequence
from typing import Any

from train.settings.recipes.fields import Preset

_PRE = {"model.norm": "layer", "model.norm_eps": 1e-5, "model.activation": "gelu", "model.dropout": 0.0}


def _stages(depths: Sequence[int], width: int, heads: int, **stage: Any) -> Preset:
    """The sizes of the first stage, and of those behind it, each twice as wide; `stage` are fields of all of those."""
    values = {"model.layers": depths[0], "model.width": width, "model.heads": heads, "model.stages": len(depths) - 1}
    values |= {f"model.stages.{name}": value for name, value in stage.items()}
    return _PRE | values | {f"model.stages.{index}.layers": depth for index, depth in enumerate(depths[1:])}


def _patches(size: int, patch: int, kernel: int | None = None) -> Preset:
    """Patches without [CLS], normalized; the mean of all stands for an image."""
    fields = {"size": size, "patch": patch, "kernel": kernel, "cls": False, "norm": True}
    values = {f"model.input.{name}": value for name, value in fields.items()}
    return {"model.input": "patches", "model.head.pool": "mean", "model.head.dense": False} | values


def _windows(window: int, kind: str = "", shift: int = 0) -> Preset:
    """Attention in windows, of all layers or of a kind of layer."""
    mixer = f"model.{kind}mixer"
    return {mixer: "softmax", f"{mixer}.pattern": "windows"} | {
        f"{mixer}.pattern.window": window,
        f"{mixer}.pattern.shift": shift,
    }


def swin(depths: Sequence[int], width: int, heads: int, size: int, patch: int, window: int) -> Preset:
    """Swin (Liu et al. 2021): windows, shifted by half of their side in every second layer, and a bias of offsets."""
    shifted = _windows(window, "period.1.", window // 2)
    kinds = {"model.position": "swin", "model.residual": "pre", "model.period": 2}
    return _stages(depths, width, heads) | _patches(size, patch) | _windows(window) | kinds | shifted


def swin_v2(depths: Sequence[int], width: int, heads: int, size: int, patch: int, window: int) -> Preset:
    """Swin V2 (Liu et al. 2022): cosines, a bias that is computed, and norms of what sublayers add."""
    changes = {"model.position": "swin_v2", "model.residual": "res_post", "model.stages.norm": "last"}
    biases = {"model.mixer.key_bias": False, "model.period.1.mixer.key_bias": False}
    return swin(depths, width, heads, size, patch, window) | changes | biases


def davit(depths: Sequence[int], width: int, heads: int, size: int, patch: int, window: int) -> Preset:
    """DaViT (Ding et al. 2022): windows and channel groups in turn, and convolutions that tell positions.

    `depths` count the pairs of both kinds of layers of each stage; patches overlap.
    """
    layers = [2 * depth for depth in depths]
    stages = _stages(layers, width, heads, norm="first", bias=True)
    kinds = {"model.position": "none", "model.residual": "conditional", "model.period": 2}
    channels = {"model.period.1.mixer": "channel_groups"}
    return stages | _patches(size, patch, 2 * patch - 1) | _windows(window) | kinds | channels


def segformer(
    depths: Sequence[int], widths: Sequence[int], heads: Sequence[int], factors: Sequence[int], decoder: int, **pixels
) -> Preset:
    """SegFormer (Xie et al. 2021, table 6): patches that overlap, fewer keys by `factors`, and a decoder of all stages.
    `pixels` are options of the input. Numbers of lists are those of the stages."""
    first = {"kernel": 2 * pixels["patch"] - 1, "cls": False, "patch_norm": True, **pixels}
    values = _PRE | {f"model.input.{name}": value for name, value in first.items()}
    values |= {"model.input": "patches", "model.position": "none", "model.residual": "pre", "model.head.pool": "mean"}
    values |= {"model.feed_forward": "mix_ffn", "model.head.dense": False, "model.head.decoder_width": decoder}
    values |= {"model.stages": len(depths) - 1, "model.mixer": "spatial_reduction"}
    merged = {"kernel": 3, "norm": "last", "bias": True, "norm_before": True, "mixer": "spatial_reduction"}
    values |= {f"model.stages.{name}": value for name, value in merged.items()}
    for index, (layers, width, count, factor) in enumerate(zip(depths, widths, heads, factors, strict=True)):
        stage = f"model.stages.{index - 1}." if index else "model."
        sizes = {"layers": layers, "width": width, "heads": count, "ffn": 4 * width, "mixer.factor": factor}
        values |= {f"{stage}{name}": value for name, value in sizes.items()}
    return values


# The first is the paper's "Swin-T"; the others are for images of 32 x 32 pixels, and have about equal sizes.
MODELS = {
    "swin-tiny": swin((2, 2, 6, 2), 96, 3, size=224, patch=4, window=7),
    "swin-v2-tiny": swin_v2((2, 2, 6, 2), 96, 3, size=256, patch=4, window=8),
    "davit-tiny": davit((1, 1, 3, 1), 96, 3, size=224, patch=4, window=7),
    "swin-mini": swin((2, 4, 2), 48, 3, size=32, patch=2, window=4),
    "davit-mini": davit((1, 2, 1), 48, 3, size=32, patch=2, window=4),
}
