"""The loss of the classes of pixels."""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

import tfm
from tfm.catalogue.models.pixel_outputs import PixelModel
from tfm.ops import split
from train.losses.teaching import ClassOutputs, OutputLoss


def outputs(params: PixelModel, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> ClassOutputs:
    """What the model says of the pixels of a batch."""
    return _said(params, model, batch["pixels"], model.classes, key)


def _said(params: PixelModel, model: tfm.Config, pixels: Array, classes: int, key: Array | None) -> ClassOutputs:
    """States of pictures [B,H,W,C], and logits [B,H,W,C] of the classes of their pixels."""
    encoder_key, head_key = split(key, 2)
    _, height, width, _ = pixels.shape
    hidden = tfm.pixel_features(params, model, pixels, encoder_key)
    return ClassOutputs(hidden, None, tfm.pixel_outputs(params, model, hidden, (height, width, classes), head_key))


def sums(params: PixelModel, model: tfm.Config, batch: Mapping[str, Array], outputs: ClassOutputs) -> dict[str, Array]:
    """Sums over the pixels of a batch, float32: `loss` in nats, `weight` (their count) and `right`.

    For evaluation also [B,C], pixels of every class that are right, predicted and labelled so, and `withheld` [B]: 1
    for a drawing with a pair that is withheld.
    """
    labels, weights, withheld, logits = batch["labels"], batch["weights"], batch["withheld"], outputs.logits
    guessed = logits.argmax(-1)
    is_right = (guessed == labels).astype(jnp.float32)
    counts = weights + withheld

    def by_class(classes: Array, counts: Array) -> Array:
        return (jax.nn.one_hot(classes, logits.shape[-1]) * counts[..., None]).sum((1, 2))

    return {
        "loss": (tfm.cross_entropy(logits, labels) * weights).sum(),
        "weight": weights.sum(),
        "right": (is_right * weights).sum(),
        "right_pixels": by_class(labels, counts * is_right),
        "predicted_pixels": by_class(guessed, counts),
        "labelled_pixels": by_class(labels, counts),
        "withheld": withheld.max((1, 2)),
    }


loss = OutputLoss(outputs, sums)


@partial(jax.jit, static_argnums=(1, 2))
def guesses(params: PixelModel, model: tfm.Config, classes: int, pixels: Array) -> Array:
    """Normalized pixels [B,H,W,C] -> the most probable class of each, int32 [B,H,W]."""
    return _said(params, model, pixels, classes, None).logits.argmax(-1)
