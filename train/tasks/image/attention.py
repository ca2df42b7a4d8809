"""Where a model looks in a picture: the attention of its last layer, and attention rollout (Abnar and Zuidema 2020)."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import tfm
from train.images import sheets
from train.images.model_processor import picture_shape
from train.images.processor import ImageProcessor


def draw(params: Any, model: tfm.Config, processor: ImageProcessor, images: np.ndarray, folder: Path, first: int = 1):
    """Pictures uint8 [B,H,W,C], or videos [B,F,H,W,C] -> attention-1.png and so on in the folder, counted from `first`.

    A mixer without weights and a model in stages have none.
    """
    weights = attention_weights(params, model, processor.normalize(images))
    if not weights:
        return
    axes = model.input.axes
    assert axes is not None, "a model of patches"
    for index, image in enumerate(images):
        layers = [layer[index] for layer in weights]
        by_title = {"last layer": on_grid(layers[-1], axes), "rollout": on_grid(rollout(layers), axes)}
        if len(axes) == 3:
            image, by_title = _strips(image, by_title)
        sheets.maps(image, by_title, folder / f"attention-{first + index}.png")


def attention_weights(params: Any, model: tfm.Config, pixels: np.ndarray) -> list[np.ndarray]:
    """Normalized pixels [B,H,W,C] -> for each layer the mean over its heads, float32 [B,T,T].

    [] where none has any, and for a model in stages, whose grids differ.
    """
    if model.stages:
        return []
    weights = [layer for layer in _weights(params.encoder, model, pixels) if layer is not None]
    return [np.asarray(layer, np.float32).mean((1, 2)) for layer in weights]


def has_weights(params: Any, model: tfm.Config) -> bool:
    """Whether `draw` draws pictures of a model; nothing is computed."""
    if model.stages:
        return False
    pixels = jax.ShapeDtypeStruct((1, *picture_shape(model)), np.float32)
    layers = jax.eval_shape(lambda encoder, pixels: _weights(encoder, model, pixels), params.encoder, pixels)
    return any(layer is not None for layer in layers)


@partial(jax.jit, static_argnums=1)
def _weights(encoder: Any, model: tfm.Config, pixels: jax.Array) -> list[jax.Array | None]:
    """The attention weights [B,K,G,T,T] of every layer."""
    x = tfm.embed(encoder.embed, model, pixels)
    context = tfm.AttentionContext(tfm.default_positions(x), record=True, restarts=False)
    outputs = tfm.stack(encoder, model, x, context)[1]
    return [output.weights for output in tfm.by_layer(model, outputs)]


def rollout(layers: Sequence[np.ndarray]) -> np.ndarray:
    """Weights [T,T] of every layer, the first one first -> [T,T]: of what of the input a state of the last layer is.

    A layer passes on half of what it reads, and half of what its attention brings (eq. 1).
    """
    result = np.eye(len(layers[0]))
    for weights in layers:
        mixed = (weights + np.eye(len(weights))) / 2
        result = mixed / mixed.sum(-1, keepdims=True) @ result
    return result


def _strips(video: np.ndarray, by_title: Mapping[str, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A video uint8 [F,H,W,C] and maps [t,h,w] of its tubes -> the frames side by side, and maps [h,F*w]."""
    maps = {title: np.repeat(values, len(video) // len(values), axis=0) for title, values in by_title.items()}
    return sheets.strip(video), {title: sheets.strip(values[..., None])[..., 0] for title, values in maps.items()}


def on_grid(weights: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Weights [T,T] -> [h,w] of the patches, or [t,h,w] of tubes: those of [CLS], or the mean over all where there is
    none."""
    patches = math.prod(axes)
    before = len(weights) - patches  # [CLS] and the like
    row = weights[0] if before else weights.mean(0)
    return row[before:].reshape(axes)
