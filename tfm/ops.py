"""The operations that layers are made of: the einsum seam, table lookup, norms, activations, dropout.

Weights meet activations here and nowhere else, so this file alone knows that parameters may be sharded.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec, reshard

from tfm import params
from tfm.config import Config


@struct.dataclass
class Linear:
    """An affine map; `bias` is None where the model has none."""

    kernel: Array
    bias: Array | None


@struct.dataclass
class Norm:
    """Scale and bias [D] of a norm; RMS norm has no bias."""

    scale: Array
    bias: Array | None


def linear_specs(config: Config, inputs: str, outputs: str, bias: bool | None = None) -> Linear:
    """Kernel [inputs, outputs] and bias [outputs]; `bias=None` takes `config.bias`."""
    has_bias = config.bias if bias is None else bias
    return Linear(params.weight(config, inputs + outputs), params.bias(config, outputs) if has_bias else None)


def linear(layer: Linear, equation: str, x: Array) -> Array:
    """`einsum(equation, x, kernel)` plus the bias on the last axes, in the dtype of x."""
    y = einsum(equation, x, layer.kernel)
    return y if layer.bias is None else y + _along(layer.bias, y)


def einsum(equation: str, x: Array, kernel: Array, dtype=None) -> Array:
    """x times a kernel, computed in the dtype of x; the result has that dtype too, or `dtype`.

    The one place where kernels are used. It does three things that `jnp.einsum` does not:
    - a kernel sharded over `fsdp` is gathered before its use, and its gradient is scattered again by the transpose;
    - the leading axes that x and the result share become one: the weight gradient of a product with one leading axis is a plain
      matrix product, where XLA on CPU makes slow transposed copies with two. An axis that is sharded is not folded into another one;
    - the result is sharded as the letters of its operands are.
    """
    operands, output = equation.split("->")
    left, right = operands.split(",")
    kernel = gather(kernel).astype(x.dtype)
    place = dict(zip(right, spec_of(kernel), strict=True)) | dict(zip(left, spec_of(x), strict=True))
    lead = next(n for n, letter in enumerate(left) if letter not in output)
    leading, fold = x.shape[:lead], lead > 1 and not any(place[letter] for letter in left[1:lead])
    if fold:
        x = x.reshape(-1, *x.shape[lead:])
        left, output = "B" + left[lead:], "B" + output[lead:]
        place["B"] = place.get(equation[0])
    sharding = _named(kernel, x, *(place[letter] for letter in output))
    y = jnp.einsum(f"{left},{right}->{output}", x, kernel, preferred_element_type=dtype, out_sharding=sharding)
    return y.reshape(*leading, *y.shape[1:]) if fold else y


def lookup(table: Array, ids: Array) -> Array:
    """Rows of table [V,D] for ids [B,T] -> [B,T,D]; NaN for an id outside the table."""
    table = gather(table)
    return table.at[ids].get(mode="fill", wrap_negative_indices=False, out_sharding=_named(table, ids, *spec_of(ids), None))


def gather(parameter: Array) -> Array:
    """A parameter as a layer needs it: whole along `fsdp`, still sharded along `tensor`."""
    places = spec_of(parameter)
    if "fsdp" not in places:
        return parameter
    return reshard(parameter, _named(parameter, parameter, *(None if place == "fsdp" else place for place in places)))


def spec_of(x: Array) -> tuple:
    """The mesh axes of each axis of x; None where an axis is whole, as every axis is without an Explicit mesh."""
    spec = tuple(jax.typeof(x).sharding.spec)
    return spec + (None,) * (x.ndim - len(spec))


def norm_specs(config: Config) -> Norm:
    """Scale, and a bias for layer norm."""
    return Norm(params.scale(config, "D"), params.bias(config, "D") if config.norm == "layer" else None)


def layer_norm(layer: Norm, x: Array, eps: float) -> Array:
    """x [...,D] -> [...,D] with mean 0 and variance 1, scaled and shifted; computed in float32 (Ba et al. 2016, eq. 4)."""
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    y = (wide - mean) * jax.lax.rsqrt(variance + eps)
    return (y * _along(layer.scale, wide) + _along(layer.bias, wide)).astype(x.dtype)


def rms_norm(layer: Norm, x: Array, eps: float) -> Array:
    """x [...,D] -> [...,D] with root mean square 1, scaled; computed in float32 (Zhang & Sennrich 2019, eq. 4)."""
    wide = x.astype(jnp.float32)
    y = wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + eps)
    return (y * _along(layer.scale, wide)).astype(x.dtype)


NORMS = {"layer": layer_norm, "rms": rms_norm}


def norm(config: Config, layer: Norm, x: Array) -> Array:
    """The norm that the config names."""
    return NORMS[config.norm](layer, x, config.norm_eps)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}

# Gated feed-forward variants and the activation of their gate (Shazeer 2020).
GATES = {"swiglu": "silu", "geglu": "gelu"}


def activation(config: Config) -> Callable[[Array], Array]:
    """The activation that the config names; for a gated variant, that of its gate."""
    return ACTIVATIONS[GATES.get(config.activation, config.activation)]


def dropout(x: Array, rate: float, key: Array | None) -> Array:
    """x with a fraction `rate` of its elements zeroed and the rest scaled by 1 / (1 - rate); x itself without a key.

    The elements that are dropped depend on the key and the shape alone, not on how x is sharded.
    """
    if key is None or rate == 0:
        return x
    keep = jax.random.bernoulli(key, 1 - rate, x.shape, out_sharding=_named(x, x, *spec_of(x)))
    return jnp.where(keep, x / (1 - rate), 0)


def split(key: Array | None, number: int):
    """`jax.random.split`, where no key at all (no dropout) is passed on as None."""
    return (None,) * number if key is None else jax.random.split(key, number)


def _along(parameter: Array | None, x: Array) -> Array:
    """A parameter in the dtype of x, with leading axes of size 1 so that it broadcasts over x."""
    assert parameter is not None, "this variant needs a parameter that its specs do not declare"
    return jnp.expand_dims(gather(parameter).astype(x.dtype), range(x.ndim - parameter.ndim))


def _named(one: Array, other: Array, *places) -> NamedSharding | None:
    """A sharding on the mesh of the operands, None where neither is sharded."""
    for x in (one, other):
        if any(spec_of(x)):
            return NamedSharding(jax.typeof(x).sharding.mesh, PartitionSpec(*places))
    return None
