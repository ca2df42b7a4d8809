"""Batch normalization (Ioffe & Szegedy 2015, algorithms 1 and 2): every feature has mean 0 and variance 1 over a batch.

Two forward passes: one that is differentiated has the statistics of its batch, any other one the running statistics.
These change in the backward pass, as those of power normalization do (`tfm.Spec.running`).
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

# How much of a statistic stays in a step.
MOMENTUM = 0.9


@struct.dataclass
class BatchStats:
    """float32 [D]: the running mean and variance of every feature."""

    mean: Array
    variance: Array


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def batch_normalized(x: Array, stats: BatchStats, eps: float) -> Array:
    """float32 x [...,D] with statistics of shape [1,...,1,D]."""
    return (x - stats.mean) * jax.lax.rsqrt(stats.variance + eps)


def _forward(x: Array, stats: BatchStats, eps: float) -> tuple[Array, tuple[Array, Array, BatchStats]]:
    """And what the backward pass reads: y, its scale, and the changes of the statistics."""
    axes = tuple(range(x.ndim - 1))
    mean = x.mean(axes, keepdims=True)
    variance = jnp.square(x - mean).mean(axes, keepdims=True)
    scale = jax.lax.rsqrt(variance + eps)
    y = (x - mean) * scale
    changes = BatchStats((1 - MOMENTUM) * (mean - stats.mean), (1 - MOMENTUM) * (variance - stats.variance))
    return y, (y, scale, changes)


def _backward(eps: float, kept: tuple[Array, Array, BatchStats], gradient: Array) -> tuple[Array, BatchStats]:
    """The gradient of x, through the statistics of the batch, and the changes of the running ones."""
    y, scale, changes = kept
    axes = tuple(range(y.ndim - 1))
    centred = gradient - gradient.mean(axes, keepdims=True)
    return scale * (centred - y * (gradient * y).mean(axes, keepdims=True)), changes


batch_normalized.defvjp(_forward, _backward)
