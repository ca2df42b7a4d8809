"""The operations that layers are made of: the einsum seam, table lookup, activations, dropout.

Weights meet activations here and nowhere else, so this file alone knows that parameters may be sharded.
Tried: another order of the operands in backward products (docs/measured.md, M2).
"""

import math
import re
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

from tfm import params
from tfm.axes import is_plain_cpu, platform
from tfm.config.model import Config
from tfm.hashing import kept
from tfm.int8 import Int8, rounded, scale_for, side_of_channels
from tfm.low_rank import LowRank, factors
from tfm.products import is_matrix_product, matrix_product, over_rows
from tfm.sharding import named_sharding, spec_of, unshard_fsdp

UNDECLARED = "this variant needs a parameter that its specs do not declare"


@struct.dataclass
class Linear:
    """An affine map: kernel [inputs,outputs] and bias [outputs], each of one axis or several; a bias may be None."""

    kernel: Array | LowRank | Int8
    bias: Array | None


def linear_specs(
    config: Config, inputs: str, outputs: str, bias: bool | None = None, branch: bool = False, **sizes: int
) -> Linear:
    """Kernel [inputs, outputs] and bias [outputs]; `bias=None` takes `config.bias`. See `tfm.Spec` for `branch`.

    `sizes` are those of lower-case axes.
    """
    has_bias = config.bias if bias is None else bias
    return Linear(
        params.weight_spec(config, inputs + outputs, inputs=len(inputs), branch=branch, **sizes),
        params.bias_spec(config, outputs, **sizes) if has_bias else None,
    )


def linear(layer: Linear, equation: str, x: Array) -> Array:
    """x [B,T,inputs], kernel [inputs,outputs] and bias [outputs] -> [B,T,outputs] in the dtype of x.

    It is `einsum(equation, x, kernel)` plus the bias on the last axes; inputs and outputs may be several axes.
    """
    y = einsum(equation, x, layer.kernel)
    if layer.bias is None:
        return y
    leading = y.ndim - layer.bias.ndim
    if layer.bias.ndim == 1 or platform() != "gpu" or any((*spec_of(layer.bias), *spec_of(y)[leading:])):
        return y + broadcast_param(layer.bias, y)
    merged = y.reshape(*y.shape[:leading], -1)  # a vector is added with the product (M60)
    return (merged + broadcast_param(layer.bias.ravel(), merged)).reshape(y.shape)


def einsum(equation: str, x: Array, kernel: Array | LowRank | Int8, dtype=None) -> Array:
    """x [B,T,inputs] times a kernel [inputs,outputs] -> [B,T,outputs], for the axes that the equation names.

    It is computed in the dtype of x; the result has that dtype too, or `dtype`.

    The one place where kernels are used, and what may stand for one (`LowRank`, `Int8`). It does three things that
    `jnp.einsum` does not:
    - a kernel sharded over `fsdp` is gathered before its use, and its gradient is scattered again by the transpose;
    - the batch axes are merged into one; on a CPU the summed axes and the output axes are merged too, so that XLA sees
      a plain matrix product (M1: 0.96 of a step). A sharded axis is not merged into another, and axes are merged only
      if they are adjacent in all three operands;
    - the result is sharded as the letters of its operands are.
    """
    if isinstance(kernel, Int8):
        return _scaled_product(equation, x, kernel, dtype)
    if isinstance(kernel, LowRank):
        (first, first_factor), (second, second_factor) = factors(equation, kernel)
        reduced = einsum(first, dropout(x, kernel.dropout, kernel.key), first_factor)
        return einsum(equation, x, kernel.base, dtype) + kernel.scale * einsum(second, reduced, second_factor, dtype)
    left, right, output = re.split(",|->", equation)
    kernel = unshard_fsdp(kernel).astype(x.dtype)
    mesh_axis = dict(zip(right + left, (*spec_of(kernel), *spec_of(x)), strict=True))
    size = dict(zip(right + left, (*kernel.shape, *x.shape), strict=True))
    on_mesh = named_sharding(kernel, x)

    def sharding(letters: str) -> NamedSharding | None:
        return on_mesh and on_mesh.update(spec=PartitionSpec(*map(mesh_axis.get, letters)))

    shape, shape_sharding = [*map(size.__getitem__, output)], sharding(output)
    batch = min(map(left.index, {*left} - {*output}))
    for group in (left[:batch], left[batch:], output[batch:]) if platform() == "cpu" else (left[:batch],):
        is_adjacent = all(group in letters or {*group}.isdisjoint(letters) for letters in (left, right, output))
        if group and is_adjacent and not any(map(mesh_axis.get, group[1:])):
            size[group[0]] = math.prod(map(size.__getitem__, group))
            equation = equation.replace(group, group[0])
            left, right, output = re.split(",|->", equation)
    x = jnp.reshape(x, [*map(size.__getitem__, left)], out_sharding=sharding(left))
    kernel = jnp.reshape(kernel, [*map(size.__getitem__, right)], out_sharding=sharding(right))
    if dtype in (None, x.dtype) and is_matrix_product(equation, x, kernel):
        return jnp.reshape(matrix_product(x, kernel), shape, out_sharding=shape_sharding)
    y = jnp.einsum(equation, x, kernel, preferred_element_type=dtype, out_sharding=sharding(output))
    return jnp.reshape(y, shape, out_sharding=shape_sharding)


def _scaled_product(equation: str, x: Array, kernel: Int8, dtype=None) -> Array:
    """`einsum` with a kernel of eight bits, whose scales multiply the smaller arrays, the result or x.

    Where they multiply the result, x is rounded to eight bits too, with a scale for each row, and products are summed
    as whole numbers (Dettmers et al. 2022, section 2: vector-wise quantization).
    """
    operands, output = equation.split("->")
    left, right = operands.split(",")
    right, scale = kernel.letters(right), unshard_fsdp(kernel.scale)
    equation, side = f"{left},{right}->{output}", side_of_channels(right, output, scale)
    if side == "both":
        return einsum(f"{operands}->{output}", x, kernel.kernel, dtype)
    if side == "inputs":
        return einsum(equation, (x * scale_for(left, right, scale)).astype(x.dtype), kernel.values, dtype)
    values, row_scale = rounded(x, tuple(axis for axis, letter in enumerate(left) if letter not in output))
    if row_scale.size == 1 and platform() == "cpu":
        values = jnp.concatenate([values, values])  # XLA has no fast product of a single row (M49)
    y = einsum(equation, values, kernel.values, jnp.int32)[: len(x)] * scale_for(output, right, scale)
    return (y * scale_for(output, left, row_scale)).astype(dtype or x.dtype)


def lookup(table: Array | LowRank | Int8, ids: Array) -> Array:
    """Rows of table [V,...] for ids [B,T] or [B,T,c] -> float32 [B,T,...] or [B,T,c,...]; NaN for an id outside it."""
    if isinstance(table, LowRank):
        update = einsum("BTr,rD->BTD", lookup(table.down, ids), table.up)
        return lookup(table.base, ids) + table.scale * update
    if isinstance(table, Int8):
        return lookup(table.values, ids) * lookup(table.scale, ids)
    table = unshard_fsdp(table).astype(jnp.float32)
    sharding = named_sharding(table, ids, *spec_of(ids), *spec_of(table)[1:])
    return table.at[ids].get(mode="fill", wrap_negative_indices=False, out_sharding=sharding)


def unit_vectors(x: Array, axis: int = -1) -> Array:
    """x [...,D] -> float32 [...,D], every vector along an axis of length 1; vectors of zeros stay, with gradients of
    zeros."""
    x = x.astype(jnp.float32)
    squares = jnp.square(x).sum(axis, keepdims=True)
    return x * jnp.where(squares > 0, jax.lax.rsqrt(jnp.where(squares > 0, squares, 1)), 0)


def quick_gelu(x: Array) -> Array:
    """x * sigmoid(1.702 x), in the dtype of x (Hendrycks & Gimpel 2016, section 2)."""
    return x * jax.nn.sigmoid(1.702 * x)


def _with_slope(function: Callable[[Array], Array], slope: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """An activation whose derivative is computed in float32 from x alone on a GPU (M56: 0.98 of a step). It shares no
    expression with the value, such as a tanh: XLA would store that for the backward pass."""

    @jax.custom_jvp
    def activate(x: Array) -> Array:
        return function(x)

    @activate.defjvp
    def _(primals: tuple[Array], slopes: tuple[Array]) -> tuple[Array, Array]:
        (x,), (dx,) = primals, slopes
        return activate(x), (slope(x.astype(jnp.float32)) * dx.astype(jnp.float32)).astype(x.dtype)

    return lambda x: activate(x) if platform() == "gpu" else function(x)


def _slope_of_gelu(x: Array) -> Array:
    density = jnp.exp(-jnp.square(x) / 2) / math.sqrt(2 * math.pi)
    return (1 + jax.lax.erf(x / math.sqrt(2))) / 2 + x * density


def _slope_of_gelu_tanh(x: Array) -> Array:
    root, cubic = math.sqrt(8 / math.pi), 0.044715
    share = jax.nn.sigmoid(root * (x + cubic * x**3))
    return share + x * share * (1 - share) * root * (1 + 3 * cubic * x**2)


def _slope_of_silu(x: Array) -> Array:
    share = (1 + jnp.tanh(x / 2)) / 2
    return share + x * share * (1 - share)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": _with_slope(partial(jax.nn.gelu, approximate=False), _slope_of_gelu),
    "gelu_tanh": _with_slope(partial(jax.nn.gelu, approximate=True), _slope_of_gelu_tanh),
    "quick_gelu": quick_gelu,
    "relu": jax.nn.relu,
    "silu": _with_slope(jax.nn.silu, _slope_of_silu),
}

# Gated feed-forward variants and the activation of their gate (Shazeer 2020).
GATES = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh"}


def activation(config: Config) -> Callable[[Array], Array]:
    """The activation that the config names; for a gated variant, that of its gate."""
    return ACTIVATIONS[GATES.get(config.activation, config.activation)]


def dropout(x: Array, rate: float, key: Array | None) -> Array:
    """x [...] -> [...] with a fraction `rate` of its elements zeroed and the rest scaled by 1 / (1 - rate).

    It is x itself without a key. The elements that are dropped depend on the key and the shape alone, not on how x is
    sharded (Srivastava et al. 2014, section 4). Raises ValueError for a rate outside [0, 1).
    """
    if not 0 <= rate < 1:
        raise ValueError(f"rate={rate} must be at least 0 and less than 1")
    if key is None or rate == 0:
        return x
    spec = spec_of(x)
    if platform() == "gpu":  # M56: those of jax.random take 0.1 of a step
        words = jax.random.bits(key, (2,), "uint32")
        return jnp.where(kept(words, rate, x.shape, named_sharding(x, x, *spec)), x / (1 - rate), 0)
    # Unsharded axes are merged before the draw, which draws the same. M5: 0.85 of the compile time.
    rest = len(spec)
    while rest > 1 and not spec[rest - 1]:
        rest -= 1
    shape = (*x.shape[:rest], math.prod(x.shape[rest:]))
    keep = jax.random.bernoulli(key, 1 - rate, shape, out_sharding=named_sharding(x, x, *spec[:rest]))
    return jnp.where(jnp.reshape(keep, x.shape, out_sharding=named_sharding(x, x, *spec)), x / (1 - rate), 0)


def drop_rows(x: Array, rate: Array | None, key: Array | None) -> Array:
    """x [B,...] with a fraction `rate` of its examples zeroed and the others scaled by 1 / (1 - rate); x itself without
    a rate or a key.

    The key may also be that of a dropout of x. Source: stochastic depth, Huang et al. 2016, by example.
    """
    if rate is None or key is None:
        return x
    shape, sharding = (len(x), *(1,) * (x.ndim - 1)), named_sharding(x, x, spec_of(x)[0])
    keep = jax.random.bernoulli(jax.random.fold_in(key, 1), 1 - rate, shape, out_sharding=sharding)
    return jnp.where(keep, x / (1 - rate).astype(x.dtype), 0)


def split(key: Array | None, count: int):
    """`jax.random.split`; None, which is no dropout, gives None `count` times."""
    return (None,) * count if key is None else jax.random.split(key, count)


def broadcast_param(parameter: Array | None, x: Array) -> Array:
    """A parameter in the dtype of x, for sums and products with x."""
    assert parameter is not None, UNDECLARED
    parameter, leading = unshard_fsdp(parameter).astype(x.dtype), x.ndim - parameter.ndim
    if leading > 0 and parameter.shape == x.shape[leading:] and is_plain_cpu():
        return over_rows(parameter, x)
    return jnp.expand_dims(parameter, range(leading))


def expand_param(parameter: Array | None, x: Array) -> Array:
    """A parameter in the dtype of x, with leading axes of size 1 for those that only x has."""
    assert parameter is not None, UNDECLARED
    return jnp.expand_dims(unshard_fsdp(parameter).astype(x.dtype), range(x.ndim - parameter.ndim))
