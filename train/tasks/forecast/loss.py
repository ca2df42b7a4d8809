"""The loss of forecasts."""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

import tfm
from tfm.sharding import reshape_rows


def quantile_forecasts(
    params: tfm.Classifier, model: tfm.Config, frames: Array, seasonal: Array, key: Array | None = None
) -> Array:
    """Windows float32 [B,1,L,1], and forecasts [B,H] that repeat the last season, to which the model adds -> float32
    [B,H,q], quantiles of the values that follow."""
    added, horizon = tfm.classify(params, model, frames, key=key), seasonal.shape[1]
    return seasonal[..., None] + reshape_rows(added, len(added), horizon, added.shape[1] // horizon)


def pinball(forecasts: Array, targets: Array, levels: Array) -> Array:
    """forecasts [B,H,q], targets [B,H], levels [...,q] -> [B,H]: twice the mean quantile loss (Koenker and Bassett
    1978); of the median alone the absolute error."""
    errors = targets[..., None] - forecasts
    return 2 * jnp.maximum(levels * errors, (levels - 1) * errors).mean(-1)


def loss(params: tfm.Classifier, model: tfm.Config, batch: Mapping[str, Array], key: Array | None) -> dict[str, Array]:
    """Sums over the values of a batch, float32: `loss`, the quantile loss in deviations of a window, and `weight`.

    For evaluation also [B]: `mase` and `mase_seasonal`, mean errors of the median and of repeating the last season,
    over those of a season in the past; `covered`, the share of values between the outer quantiles; `counts`, 1 for a
    row.
    """
    targets, weights, levels = batch["targets"], batch["weights"], batch["levels"]
    outputs = quantile_forecasts(params, model, batch["frames"], batch["seasonal"], key)
    losses = pinball(outputs, targets, levels[:, None])
    is_median = (levels == 0.5).astype(jnp.float32)[:, None]
    median = (outputs * is_median).sum(-1)
    is_covered = (outputs.min(-1) <= targets) & (targets <= outputs.max(-1))
    return {
        "loss": (losses * weights).sum(),
        "weight": weights.sum(),
        "mase": abs(median - targets).mean(1) / batch["scales"],
        "mase_seasonal": abs(batch["seasonal"] - targets).mean(1) / batch["scales"],
        "covered": is_covered.astype(jnp.float32).mean(1),
        "counts": weights.max(1),
    }


@partial(jax.jit, static_argnums=1)
def forecasts(params: tfm.Classifier, model: tfm.Config, frames: Array, seasonal: Array) -> Array:
    """`quantile_forecasts` of a model that is trained; a quantile may cross another."""
    return quantile_forecasts(params, model, frames, seasonal)
