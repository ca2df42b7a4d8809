"""Products and sums that are written for a CPU, against those of JAX: values, forward mode, backward mode, twice, and
mapped."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import tfm
from tfm.products import is_matrix_product, matrix_product, over_rows, transposed

pytestmark = pytest.mark.usefixtures("strict")

RNG = np.random.default_rng(0)


def normal(*shape, dtype="float32"):
    return jnp.asarray(RNG.normal(size=shape), dtype)


def close(actual, expected, tolerance=1e-4):
    for left, right in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert (left.shape, left.dtype) == (right.shape, right.dtype)
        np.testing.assert_allclose(np.float64(left), np.float64(right), rtol=tolerance, atol=tolerance)


def expanded(parameter, x):
    return jnp.expand_dims(parameter, range(x.ndim - parameter.ndim))


def scaled(x, scale):
    return x * expanded(scale, x)


def shifted(x, bias):
    return x + expanded(bias, x)


PAIRS = {
    "product, more outputs": (matrix_product, jnp.matmul, (6, 4), (4, 8)),
    "product, more inputs": (matrix_product, jnp.matmul, (6, 8), (8, 4)),
    "product, odd": (matrix_product, jnp.matmul, (5, 7), (7, 3)),
    "product, a row": (matrix_product, jnp.matmul, (1, 3), (3, 5)),
    "rows": (lambda x, scale: x * over_rows(scale, x), scaled, (2, 5, 6), (6,)),
    "rows of several axes": (lambda x, scale: x * over_rows(scale, x), scaled, (2, 5, 3, 4), (3, 4)),
    "rows of a matrix": (lambda x, bias: x + over_rows(bias, x), shifted, (7, 6), (6,)),
}


# The plain tests have a case of a product and one of rows, the slow ones the others.
OTHER_SIZES = {*PAIRS} - {"product, a row", "rows of several axes"}
CASES = [pytest.param(case, marks=[pytest.mark.slow] * (case in OTHER_SIZES)) for case in PAIRS]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_derivatives(case):
    function, plain, *shapes = PAIRS[case]
    inputs, slopes = ([normal(*shape) for shape in shapes] for _ in range(2))
    close(function(*inputs), plain(*inputs))
    close(jax.jvp(function, inputs, slopes), jax.jvp(plain, inputs, slopes))
    slope = normal(*plain(*inputs).shape)
    close(jax.vjp(function, *inputs)[1](slope), jax.vjp(plain, *inputs)[1](slope))

    def loss(f):
        return lambda *inputs: (jnp.sin(f(*inputs)) ** 2).sum()

    close(jax.jit(function)(*inputs), plain(*inputs))
    for second in (jax.hessian, lambda f, arguments: jax.jacrev(jax.jacrev(f, arguments), arguments)):
        close(*(jax.jit(second(loss(f), (0, 1)))(*inputs) for f in (function, plain)))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_mapped(case, axes):
    function, plain, *shapes = PAIRS[case]
    inputs = [normal(3, *shape) if axis == 0 else normal(*shape) for shape, axis in zip(shapes, axes, strict=True)]

    def gradients(f):
        of_one = jax.vmap(jax.grad(lambda *inputs: (f(*inputs) ** 2).sum(), (0, 1)), axes)(*inputs)
        of_all = jax.grad(lambda *inputs: (jax.vmap(f, axes)(*inputs) ** 2).sum(), (0, 1))(*inputs)
        return of_one, of_all

    close(*(jax.jit(lambda f=f: gradients(f))() for f in (function, plain)))


@pytest.mark.slow
def test_bfloat16_is_summed_in_float32():
    """4,096 times 1/256 is 16; sums that are rounded to bfloat16 stop at 1."""
    x, ones = jnp.full((4096, 2), 1 / 256, jnp.bfloat16), jnp.ones((4096, 6), jnp.bfloat16)
    assert (matrix_product(x.T, ones) == 16).all()
    assert (jax.vjp(matrix_product, x, jnp.ones((2, 6), jnp.bfloat16))[1](ones)[1] == 16).all()
    assert (jax.vjp(lambda bias: over_rows(bias, ones), jnp.ones(6, jnp.bfloat16))[1](ones / 256)[0] == 16).all()


def test_einsum_takes_it_for_bfloat16():
    x, kernel = normal(2, 4, dtype="bfloat16"), normal(4, 6, dtype="bfloat16")
    assert is_matrix_product("BD,DF->BF", x, kernel)
    assert not is_matrix_product("BD,FD->BF", x, kernel)
    assert not is_matrix_product("D,DF->F", x[0], kernel)
    assert not is_matrix_product("BD,DF->BF", x.astype("float32"), kernel.astype("float32"))
    text = str(
        jax.make_jaxpr(lambda x, kernel: tfm.einsum("BTD,DKGH->BTKGH", x, kernel))(x[None], kernel[..., None, None])
    )
    assert "preferred_element_type=float32" in text


@pytest.mark.slow
def test_on_a_mesh():
    """Rows on four devices, columns whole or on two: as on a single device."""
    mesh = tfm.make_mesh(data=4, tensor=2)
    layer = tfm.Linear(normal(4, 6, dtype="bfloat16"), normal(6, dtype="bfloat16"))
    x, slope = normal(8, 3, 4, dtype="bfloat16"), normal(8, 3, 6, dtype="bfloat16")

    def gradients(layer, x, slope):
        y, backward = jax.vjp(lambda layer, x: tfm.linear(layer, "BTD,DF->BTF", x), layer, x)
        return y, backward(slope)

    expected = gradients(layer, x, slope)
    for columns in (None, "tensor"):
        with jax.set_mesh(mesh):
            put = lambda leaf, *spec: jax.device_put(leaf, NamedSharding(mesh, PartitionSpec(*spec)))
            on_mesh = tfm.Linear(put(layer.kernel, None, columns), put(layer.bias, columns))
            actual = jax.jit(gradients)(on_mesh, put(x, "data"), put(slope, "data", None, columns))
        close(actual, expected, 0.05)


def test_transposed():
    for shape in ((4, 6), (5, 3), (1, 7)):
        np.testing.assert_array_equal(transposed(x := normal(*shape)), x.T)
