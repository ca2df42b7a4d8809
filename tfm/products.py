"""Products and sums on a CPU, written as XLA computes them fast.

`matrix_product` is for bfloat16. Products of it are twice as fast as those of float32 (M50), but only where the sum is
float32 and the summed axis of the left operand is its last; XLA converts all others to float32 first. In the gradient
of a kernel the first axis is summed, so it is written as a product with a transposed copy.

`over_rows` is for biases and scales, whose gradients are sums over rows. XLA adds row to row; a product with ones takes
a fortieth of the time (M51).

Derivatives are linear functions of their own, `_derivative` and `_repeat`, for which JAX is told how to transpose them.
They are primitives, for a `jax.custom_vjp` has no forward mode.
"""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from tfm.axes import is_plain_cpu
from tfm.sharding import named_sharding, spec_of


def is_matrix_product(equation: str, x: Array, kernel: Array) -> bool:
    """Whether an equation is that of rows and columns, in bfloat16 on a CPU; columns are whole on every device."""
    letters = equation[0], equation[1:2], equation[-1]
    is_plain = equation == "{0}{1},{1}{2}->{0}{2}".format(*letters)
    return is_plain and x.dtype == jnp.bfloat16 and is_plain_cpu() and not any((*spec_of(x)[1:], *spec_of(kernel)))


@jax.custom_jvp
def matrix_product(x: Array, kernel: Array) -> Array:
    """x [M,K] times kernel [K,N], both of one dtype -> [M,N] in that dtype; sums are float32. M may be sharded."""
    return _product(x, kernel)


@matrix_product.defjvp
def _(primals: tuple[Array, Array], slopes: tuple[Array, Array]) -> tuple[Array, Array]:
    (x, kernel), (x_slope, kernel_slope) = primals, slopes
    return _product(x, kernel), _derivative.bind(x_slope, kernel) + _derivative.bind(x, kernel_slope)


def transposed(x: Array) -> Array:
    """x [M,N] -> [N,M], as a copy: XLA merges a plain transpose with the product behind it, but not this one."""
    rows, columns = x.shape
    parts = 2 if columns % 2 == 0 else 1
    y = x.reshape(rows, columns // parts, parts).transpose(1, 2, 0)
    return jnp.reshape(y, (columns, rows), out_sharding=named_sharding(x, x, None, spec_of(x)[0]))


def over_rows(parameter: Array, x: Array) -> Array:
    """parameter [N...] -> [...,N...], repeated over the leading axes of x [...,N...] and sharded as x."""
    return repeated(parameter, x.shape, jax.typeof(x).sharding if any(spec_of(x)) else None)


def _product(x: Array, kernel: Array, summed: tuple[int, int] = (1, 0)) -> Array:
    """The product over an axis of each, in the dtype of x; its rows are sharded as those of x."""
    axes = (((summed[0],), (summed[1],)), ((), ()))
    sharding = named_sharding(x, kernel, spec_of(x)[1 - summed[0]], None)
    y = jax.lax.dot_general(x, kernel, axes, preferred_element_type=jnp.float32, out_sharding=sharding)
    return y.astype(x.dtype)


def _gradient_of_x(slope: Array, x: ad.UndefinedPrimal, kernel: Array) -> Array:
    """slope [M,N] of the product -> [M,K]."""
    return _product(slope, kernel, (1, 1))


def _gradient_of_kernel(slope: Array, x: Array, kernel: ad.UndefinedPrimal) -> Array:
    """slope [M,N] of the product -> [K,N]; the smaller operand is copied."""
    if x.shape[1] <= slope.shape[1]:
        return _product(transposed(x), slope)
    return transposed(_product(transposed(slope), x))


def _type_of_product(x: jax.core.ShapedArray, kernel: jax.core.ShapedArray) -> jax.core.ShapedArray:
    """The type of the product of operands of these types, one of which may be on no mesh."""
    on_mesh = kernel if x.sharding.mesh.empty else x
    sharding = on_mesh.sharding.update(spec=PartitionSpec(x.sharding.spec[0], None))
    return x.update(shape=(x.shape[0], kernel.shape[1]), sharding=sharding, weak_type=False)


def _repeated(parameter: Array, shape: tuple[int, ...], sharding: NamedSharding | None) -> Array:
    """The parameter in a shape that ends in its own, with the derivative of JAX; `repeated` has its own."""
    axes = range(len(shape) - parameter.ndim, len(shape))
    return jax.lax.broadcast_in_dim(parameter, shape, axes, out_sharding=sharding)


repeated = jax.custom_jvp(_repeated, nondiff_argnums=(1, 2))


@repeated.defjvp
def _(shape, sharding, primals: tuple[Array], slopes: tuple[Array]) -> tuple[Array, Array]:
    return _repeated(*primals, shape, sharding), _repeat.bind(*slopes, shape=shape, sharding=sharding)


def _sum_of_rows(
    slope: Array, parameter: ad.UndefinedPrimal, shape: tuple[int, ...], sharding: NamedSharding | None
) -> list[Array]:
    """slope [...,N...] -> [N...]."""
    leading = len(shape) - parameter.aval.ndim
    spec, dtype = spec_of(slope), slope.dtype
    if any(spec[1:leading]):
        return [slope.sum(tuple(range(leading)))]
    rows = math.prod(shape[:leading]), *shape[leading:]
    slope = jnp.reshape(slope, rows, out_sharding=named_sharding(slope, slope, spec[0], *spec[leading:]))
    ones = jnp.ones((8 if dtype == jnp.bfloat16 else 1, len(slope)), dtype)  # a row of bfloat16 has no fast product
    wide = jnp.float32 if dtype.itemsize < 4 else dtype
    result = named_sharding(slope, slope, None, *spec[leading:])
    axes = (((1,), (0,)), ((), ()))
    sums = jax.lax.dot_general(ones, slope, axes, preferred_element_type=wide, out_sharding=result)
    return [sums[0].astype(dtype)]


def _type_of_repeated(
    parameter: jax.core.ShapedArray, shape: tuple[int, ...], sharding: NamedSharding | None
) -> jax.core.ShapedArray:
    """The type of the repeated parameter, which may be on no mesh where x is on one."""
    replicated = parameter.sharding.update(spec=PartitionSpec(*(None,) * len(shape)))
    return parameter.update(shape=shape, sharding=sharding or replicated, weak_type=False)


def _linear(name: str, compute: Callable[..., Array], result_type: Callable) -> Primitive:
    """A primitive that computes as a function does, under `jit` and `vmap` too."""

    def map_rows(operands, axes, **options):
        return jax.vmap(partial(compute, **options), axes)(*operands), 0

    primitive = Primitive(name)
    primitive.def_impl(compute)
    primitive.def_abstract_eval(result_type)
    batching.primitive_batchers[primitive] = map_rows
    mlir.register_lowering(primitive, mlir.lower_fun(compute, multiple_results=False))
    return primitive


_derivative = _linear("matrix_product", _product, _type_of_product)
ad.defbilinear(_derivative, _gradient_of_x, _gradient_of_kernel)

_repeat = _linear("over_rows", _repeated, _type_of_repeated)
ad.deflinear2(_repeat, _sum_of_rows)
