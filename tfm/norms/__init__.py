"""Norms: each makes activations the same size along their width, computed in float32."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from tfm import params
from tfm.axes import platform
from tfm.config.model import RUNNING_NORMS, Config
from tfm.norms.batch import BatchStats, batch_normalized
from tfm.norms.power import RunningStats, power_normalized
from tfm.ops import broadcast_param, expand_param
from tfm.sharding import spec_of, unshard_fsdp

# The largest width whose rows fit the registers of a program of the kernel.
WIDEST = 4096


@struct.dataclass
class Norm:
    """Scale and bias [D] of a norm, and running statistics: `layer`, `batch` and `power` have a bias, the last two
    have statistics, and `none` has nothing."""

    scale: Array
    bias: Array | None
    stats: RunningStats | BatchStats | None = None


def norm_specs(config: Config, axis: str = "D", **sizes: int) -> Norm:
    """Scale, and bias and statistics where the norm has them; `sizes` are those of lower-case axes."""
    if config.norm == "none":
        absent: params.ArraySpec = None
        return Norm(absent, None)
    bias = params.bias_spec(config, axis, **sizes) if config.norm in ("layer", *RUNNING_NORMS) else None
    running = lambda value: params.running_spec(config, axis, params.constant(value), **sizes)
    stats: RunningStats | BatchStats | None = None
    if config.norm == "power":
        stats = RunningStats(mean_square=running(1.0), correlation=running(0.0))
    elif config.norm == "batch":
        stats = BatchStats(mean=running(0.0), variance=running(1.0))
    return Norm(params.scale_spec(config, axis, **sizes), bias, stats)


def layer_norm(layer: Norm, x: Array, eps: float) -> Array:
    """x [...,D] -> [...,D] with mean 0 and variance 1, times a scale plus a bias, if any; computed in float32.

    Source: Ba et al. 2016, eq. 4.
    """
    y = standardized(x.astype(jnp.float32), eps)
    y = y * broadcast_param(layer.scale, y)
    return (y if layer.bias is None else y + broadcast_param(layer.bias, y)).astype(x.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def standardized(x: Array, eps: float) -> Array:
    """float32 x [...,D] -> [...,D] with mean 0 and variance 1.

    Its derivative is written out: the derivative that JAX derives makes more passes over x (M3: 0.91 of a step; M4). It
    works in forward and backward mode, and can be differentiated again.
    """
    return _standard(x, eps)[0]


def _standard(x: Array, eps: float) -> tuple[Array, Array]:
    """And what x was multiplied by. On a GPU mean and scale are stored: the backward pass reads them, where XLA would
    compute them again (M56: 0.97 of a step)."""
    mean = x.mean(-1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.square(x - mean).mean(-1, keepdims=True) + eps)
    if platform() == "gpu":
        mean, scale = jax.lax.optimization_barrier((mean, scale))
    return (x - mean) * scale, scale


@standardized.defjvp
def _(eps: float, primals: tuple[Array], slopes: tuple[Array]) -> tuple[Array, Array]:
    (y, scale), (slope,) = _standard(primals[0], eps), slopes
    slope = slope - slope.mean(-1, keepdims=True)
    return y, scale * (slope - y * (slope * y).mean(-1, keepdims=True))


def rms_norm(layer: Norm, x: Array, eps: float) -> Array:
    """x [...,D] -> [...,D] with root mean square 1, scaled; computed in float32 (Zhang & Sennrich 2019, eq. 4)."""
    wide = x.astype(jnp.float32)
    y = wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + eps)
    return (y * broadcast_param(layer.scale, wide)).astype(x.dtype)


def power_norm(layer: Norm, x: Array, eps: float) -> Array:
    """x [...,D] -> [...,D], every feature divided by its running root mean square, times a scale plus a bias; computed
    in float32.

    Source: Shen et al. 2020, algorithm 2. The gradient of the statistics is their change in this step.
    """
    return _by_statistics(power_normalized, layer, x, eps)


def batch_norm(layer: Norm, x: Array, eps: float) -> Array:
    """x [...,D] -> [...,D], every feature with mean 0 and variance 1 over all places of the batch, padding too, times
    a scale plus a bias; computed in float32. What is not differentiated, as in evaluation, has running statistics.

    Source: Ioffe & Szegedy 2015, algorithms 1 and 2.
    """
    return _by_statistics(batch_normalized, layer, x, eps)


def _by_statistics(normalized: Callable[..., Array], layer: Norm, x: Array, eps: float) -> Array:
    """x [...,D], normalized by running statistics in float32, times a scale plus a bias."""
    wide = x.astype(jnp.float32)
    stats = jax.tree.map(lambda leaf: expand_param(leaf, wide), layer.stats)
    y = normalized(wide, stats, eps) * broadcast_param(layer.scale, wide)
    return (y + broadcast_param(layer.bias, y)).astype(x.dtype)


def no_norm(layer: Norm, x: Array, eps: float) -> Array:
    """x [...,D] as it is."""
    return x


NORMS = {
    "layer": layer_norm,
    "rms": rms_norm,
    "layer_no_bias": layer_norm,
    "power": power_norm,
    "batch": batch_norm,
    "none": no_norm,
}

# Those that a kernel computes too.
_OF_A_ROW = ("layer", "rms", "layer_no_bias")


def norm(config: Config, layer: Norm, x: Array) -> Array:
    """The norm that the config names."""
    return _fused(config, layer, x) if _is_fused(config, x) else NORMS[config.norm](layer, x, config.norm_eps)


def fork(config: Config, layer: Norm, x: Array) -> tuple[Array, Array]:
    """x [...,D], which goes on to a sum, and its norm. A kernel adds the gradients of both."""
    return _fused(config, layer, x, forked=True) if _is_fused(config, x) else (x, norm(config, layer, x))


def _is_fused(config: Config, x: Array) -> bool:
    """Whether a kernel computes the norm of x [...,D] in one pass: on a GPU, in 16 bits, in rows that are whole on a
    device."""
    if config.kernel != "triton" or config.norm not in _OF_A_ROW or platform() != "gpu":
        return False
    return x.dtype.itemsize == 2 and x.ndim > 1 and x.shape[-1] <= WIDEST and not spec_of(x)[-1]


def _fused(config: Config, layer: Norm, x: Array, forked: bool = False):
    """The norm, or x and the norm, by the kernel."""
    from tfm.norms import kernel

    scale = unshard_fsdp(layer.scale).astype(jnp.float32)
    bias = None if layer.bias is None else unshard_fsdp(layer.bias).astype(jnp.float32)
    return kernel.normalized(x, scale, bias, config.norm_eps, config.norm != "rms", forked)
