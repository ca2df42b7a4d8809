"""Power normalization (Shen et al. 2020, algorithm 2): every feature is divided by a running root mean square.

In the paper's letters, psi^2 is `mean_square` and nu is `correlation`. Both change in the backward pass: JAX returns
from there what stands for a gradient, so the change of a statistic does (`tfm.Spec.running`). A forward pass reads
statistics alone, and is one of every token by itself.

What the authors' code has beside the paper's algorithm is left out: a warm-up with statistics of the batch, and groups
of features that are scaled before.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

# How much of a statistic stays in a step (section 5.1).
MOMENTUM = 0.9


@struct.dataclass
class RunningStats:
    """float32 [D]: the mean square of every feature, and its mean product, normalized, with its gradient."""

    mean_square: Any
    correlation: Any


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def power_normalized(x: Array, stats: RunningStats, eps: float) -> Array:
    """float32 x [...,D] / root of the mean square, whose statistics have the shape [1,...,1,D]."""
    return x * jax.lax.rsqrt(stats.mean_square + eps)


def _forward(x: Array, stats: RunningStats, eps: float) -> tuple[Array, tuple[Array, RunningStats]]:
    y = power_normalized(x, stats, eps)
    return y, (y, stats)


def _backward(eps: float, kept: tuple[Array, RunningStats], gradient: Array) -> tuple[Array, RunningStats]:
    """The gradient of x, and the changes of the statistics."""
    y, stats = kept
    axes = tuple(range(y.ndim - 1))
    square = jnp.square(y).mean(axes, keepdims=True)
    product = (y * gradient).mean(axes, keepdims=True)
    x_gradient = (gradient - stats.correlation * y) * jax.lax.rsqrt(stats.mean_square + eps)
    changes = RunningStats(
        mean_square=(1 - MOMENTUM) * (square * (stats.mean_square + eps) - stats.mean_square),
        correlation=(1 - MOMENTUM) * (product - stats.correlation * square),
    )
    return x_gradient, changes


power_normalized.defvjp(_forward, _backward)
