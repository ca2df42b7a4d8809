"""The loss of restored pictures."""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

import tfm
from tfm.catalogue.models.pixel_outputs import PixelModel
from tfm.ops import split
from train.metrics.similarity import psnr, ssim


def restored(
    params: PixelModel, model: tfm.Config, batch: Mapping[str, Array], key: Array | None = None
) -> tuple[Array, Array]:
    """Fields `pixels`, `starts` and `holes` of a batch -> pictures float32 [B,H,W,C], about 0 to 1: the trivial answer,
    with what the model adds to it in holes; and the last states."""
    encoder_key, head_key = split(key, 2)
    starts = batch["starts"]
    _, height, width, channels = starts.shape
    hidden = tfm.pixel_features(params, model, batch["pixels"], encoder_key)
    added = tfm.pixel_outputs(params, model, hidden, (height, width, channels), head_key)
    return starts + batch["holes"][..., None] * added, hidden


def loss(params: PixelModel, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> dict[str, Array]:
    """Sums over the pixels of a batch, float32: `loss`, squared errors of values from 0 to 1, mean over channels, and
    `weight`, the count of pixels that are asked for.

    For evaluation also [B]: PSNR and SSIM of the pictures in 256 steps, those of the trivial answer, `counts`, 1 for a
    row, and `withheld`, 1 for a drawing with a pair that is withheld.
    """
    images, _ = restored(params, model, batch, key)
    errors, weights, withheld = jnp.square(images - batch["targets"]).mean(-1), batch["weights"], batch["withheld"]
    truths = jnp.round(255 * batch["targets"])
    measured: dict[str, Array] = {}
    for name, pictures in {"": images, "_trivial": batch["starts"]}.items():
        shown = jnp.round(255 * jnp.clip(pictures, 0, 1))
        measured |= {f"psnr{name}": psnr(shown, truths), f"ssim{name}": ssim(shown, truths)}
    return {
        "loss": (errors * weights).sum(),
        "weight": weights.sum(),
        "counts": weights.max((1, 2)),
        "withheld": withheld,
        **measured,
    }


@partial(jax.jit, static_argnums=1)
def pictures(params: PixelModel, model: tfm.Config, batch: Mapping[str, Array]) -> Array:
    """Fields of a batch -> the restored pictures, uint8 [B,H,W,C]."""
    images, _ = restored(params, model, batch)
    return jnp.round(255 * jnp.clip(images, 0, 1)).astype(jnp.uint8)
