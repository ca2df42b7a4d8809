import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import tfm
from tfm import norms, ops
from tfm.norms import norm

pytestmark = pytest.mark.usefixtures("strict")

SIZES = dict(B=2, T=5, S=7, M=3, D=6, E=6, K=2, G=3, H=4, F=9, V=11)
EQUATIONS = [
    "BTD,DKGH->BTKGH",
    "BSD,DKH->BSKH",
    "BTKGH,KGHD->BTD",
    "BTD,GDKH->BTKGH",
    "BTKGH,GHDK->BTD",
    "BTD,DF->BTF",
    "BTF,FD->BTD",
    "BMD,DE->BME",
    "BMD,VD->BMV",
    "TD,DF->TF",
    "D,DF->F",
]


def normal(seed, *shape):
    return jax.device_put(np.float32(np.random.default_rng(seed).normal(size=shape)))


def operands(equation):
    left, right = equation.split("->")[0].split(",")
    return normal(0, *(SIZES[letter] for letter in left)), normal(1, *(SIZES[letter] for letter in right))


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum_is_einsum(equation):
    x, kernel = operands(equation)
    np.testing.assert_allclose(tfm.einsum(equation, x, kernel), np.einsum(equation, x, kernel), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("equation", EQUATIONS)
def test_gradients_of_einsum(equation):
    """y = x w: dx = dy w and dw = x dy, summed over the letters that are gone."""
    x, kernel = operands(equation)
    inputs, output = equation.split("->")
    left, right = inputs.split(",")
    y, backward = jax.vjp(lambda x, kernel: tfm.einsum(equation, x, kernel), x, kernel)
    dy = normal(2, *y.shape)
    dx, dkernel = backward(dy)
    np.testing.assert_allclose(dx, np.einsum(f"{output},{right}->{left}", dy, kernel), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dkernel, np.einsum(f"{left},{output}->{right}", x, dy), rtol=1e-5, atol=1e-5)


def test_derivatives_of_layer_norm():
    """Forward, backward and twice, against those of the plain formula."""
    layer, x = tfm.Norm(normal(0, 6), normal(1, 6)), normal(2, 3, 6)

    def plain(x):
        centred = x - x.mean(-1, keepdims=True)
        return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3) * layer.scale[None] + layer.bias[None]

    for derive in (jax.jacfwd, jax.jacrev, lambda f: jax.jacfwd(jax.jacrev(lambda x: (f(x) ** 2).sum(-1)))):
        expected = jax.jit(derive(plain))(x)
        actual = jax.jit(derive(lambda x: tfm.layer_norm(layer, x, 1e-3)))(x)
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)


def test_einsum_computes_in_the_dtype_of_x():
    x, kernel = operands("BTD,DF->BTF")
    half = x.astype(jnp.bfloat16)
    assert tfm.einsum("BTD,DF->BTF", half, kernel).dtype == jnp.bfloat16
    wide = tfm.einsum("BTD,DF->BTF", half, kernel, dtype=jnp.float32)
    assert wide.dtype == jnp.float32
    expected = np.einsum("BTD,DF->BTF", half.astype(jnp.float32), kernel.astype(jnp.bfloat16).astype(jnp.float32))
    np.testing.assert_allclose(wide, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("equation", EQUATIONS)
def test_linear_adds_the_bias_on_the_last_axes(equation):
    x, kernel = operands(equation)
    inputs, output = equation.split("->")
    outputs = "".join(letter for letter in output if letter in inputs.split(",")[1])
    bias = normal(3, *(SIZES[letter] for letter in outputs))
    expected = np.einsum(equation, x, kernel)
    np.testing.assert_allclose(tfm.linear(tfm.Linear(kernel, None), equation, x), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        tfm.linear(tfm.Linear(kernel, bias), equation, x), expected + np.asarray(bias), rtol=1e-5, atol=1e-5
    )


def test_linear_specs():
    config = tfm.Config(heads=6, kv_heads=2, width=24)
    layer = tfm.linear_specs(config, "D", "KGH")
    assert (layer.kernel.shape, layer.bias.shape) == ((24, 2, 3, 4), (2, 3, 4))
    assert tfm.linear_specs(tfm.Config(bias=False), "D", "F").bias is None
    assert tfm.linear_specs(tfm.Config(bias=False), "D", "F", bias=True).bias is not None


def test_lookup_takes_rows_and_gives_nan_outside():
    table = normal(0, 11, 6)
    ids = np.array([[0, 10, 3], [3, 3, 9]])
    np.testing.assert_array_equal(tfm.lookup(table, jnp.asarray(ids)), np.asarray(table)[ids])
    for wrong in (11, 500, -1, -11, -12):
        rows = tfm.lookup(table, jnp.array([[2, wrong]]))
        np.testing.assert_array_equal(rows[0, 0], table[2])
        assert np.isnan(rows[0, 1]).all(), wrong


def test_gather_leaves_an_unsharded_parameter_alone():
    x = normal(0, 3, 4)
    assert tfm.unshard_fsdp(x) is x
    assert ops.spec_of(x) == (None, None)


def test_layer_norm():
    x, scale, bias = normal(0, 2, 5, 7) * 3 + 2, normal(1, 7), normal(2, 7)
    y = tfm.layer_norm(tfm.Norm(scale, bias), x, 1e-3)
    for b in range(2):
        for t in range(5):
            row = np.asarray(x[b, t], np.float64)
            mean = sum(row) / 7
            variance = sum((row - mean) ** 2) / 7
            expected = (row - mean) / math.sqrt(variance + 1e-3) * np.asarray(scale) + np.asarray(bias)
            np.testing.assert_allclose(y[b, t], expected, rtol=1e-5, atol=1e-5)


def test_layer_norm_on_a_gpu(monkeypatch):
    """Also its derivatives, the second ones too."""
    x, scale = normal(0, 3, 7) * 3 + 2, normal(1, 7)
    total = lambda x: (tfm.layer_norm(tfm.Norm(scale, None), x, 1e-3) ** 3).sum()
    derivatives = lambda: (total(x), jax.grad(total)(x), jax.jit(jax.hessian(total))(x))
    expected = derivatives()
    monkeypatch.setattr(norms, "platform", lambda: "gpu")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), derivatives(), expected)


def test_layer_norm_without_a_bias():
    """As with a bias of zeros."""
    config = tfm.Config(heads=1, width=7, norm="layer_no_bias", norm_eps=1e-3)
    assert tfm.norm_specs(config).bias is None
    x, scale = normal(0, 2, 5, 7) * 3 + 2, normal(1, 7)
    expected = tfm.layer_norm(tfm.Norm(scale, jnp.zeros(7)), x, 1e-3)
    np.testing.assert_array_equal(norm(config, tfm.Norm(scale, None), x), expected)


def test_rms_norm():
    x, scale = normal(0, 2, 5, 7) * 3 + 2, normal(1, 7)
    y = tfm.rms_norm(tfm.Norm(scale, None), x, 1e-3)
    for b in range(2):
        for t in range(5):
            row = np.asarray(x[b, t], np.float64)
            expected = row / math.sqrt(sum(row**2) / 7 + 1e-3) * np.asarray(scale)
            np.testing.assert_allclose(y[b, t], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["layer", "rms", "layer_no_bias"])
def test_norms_compute_in_float32(name):
    """Numbers around 300 whose squares differ by less than bfloat16 can hold: computed so, the result is far off."""
    config = tfm.Config(width=64, norm=name)
    x = (normal(0, 1, 1, 64) * 4 + 300).astype(jnp.bfloat16)
    layer = tfm.init(tfm.norm_specs(config), jax.random.key(0))
    assert (layer.bias is None) == (name != "layer")
    y = norm(config, layer, x)
    wide = norm(config, layer, x.astype(jnp.float32))
    assert (y.dtype, wide.dtype) == (jnp.bfloat16, jnp.float32)
    np.testing.assert_array_equal(y, wide.astype(jnp.bfloat16))


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("gelu", lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2)))),
        ("gelu_tanh", lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
        ("relu", lambda x: max(x, 0.0)),
        ("silu", lambda x: x / (1 + math.exp(-x))),
        ("swiglu", lambda x: x / (1 + math.exp(-x))),
        ("geglu", lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2)))),
    ],
)
def test_activations(name, formula):
    x = np.linspace(-4, 4, 33, dtype=np.float32)
    expected = [formula(float(value)) for value in x]
    np.testing.assert_allclose(ops.activation(tfm.Config(activation=name))(jnp.asarray(x)), expected, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu"])
def test_slopes_of_activations_on_a_gpu(name, monkeypatch):
    """Those that JAX derives in float64, and the slopes of slopes; in bfloat16 nearer to them than its own."""
    activate = ops.activation(tfm.Config(activation=name))
    x = np.linspace(-6, 6, 97)
    slopes = lambda dtype: np.asarray(jax.vmap(jax.grad(activate))(jnp.asarray(x, dtype)), np.float64)
    slopes_of_slopes = lambda dtype: jax.vmap(jax.grad(jax.grad(activate)))(jnp.asarray(x, dtype))
    with jax.enable_x64(True):
        expected, expected_second = slopes(jnp.float64), slopes_of_slopes(jnp.float64)
    own_error = np.abs(slopes(jnp.bfloat16) - expected).max()
    monkeypatch.setattr(ops, "platform", lambda: "gpu")
    np.testing.assert_allclose(slopes(jnp.float32), expected, atol=3e-6)
    np.testing.assert_allclose(slopes_of_slopes(jnp.float32), expected_second, atol=2e-5)
    assert np.abs(slopes(jnp.bfloat16) - expected).max() <= own_error


def test_dropout_keeps_the_expectation():
    x = normal(0, 40, 50, 50) + 5
    rate, n = 0.3, 40 * 50 * 50
    y = np.asarray(tfm.ops.dropout(x, rate, jax.random.key(0)))
    dropped = y == 0
    assert abs(dropped.mean() - rate) < 5 * math.sqrt(rate * (1 - rate) / n)
    np.testing.assert_allclose(y[~dropped], np.asarray(x)[~dropped] / (1 - rate), rtol=1e-6)
    assert abs(y.mean() - np.asarray(x).mean()) < 5 * 5.2 * math.sqrt(rate / (1 - rate) / n)


def test_dropout_on_a_gpu_hashes_places(monkeypatch):
    """At the rate, independent of the neighbour and of another key; whatever the mesh."""
    monkeypatch.setattr("tfm.ops.platform", lambda: "gpu")
    x, rate = jnp.ones((16, 128, 64)), 0.3
    first, second = (np.asarray(ops.dropout(x, rate, jax.random.key(seed))) > 0 for seed in (0, 1))
    deviation = np.sqrt(rate * (1 - rate) / x.size)
    for keep in (first, second):
        np.testing.assert_allclose(keep.mean(), 1 - rate, atol=4 * deviation)
        for axis in range(3):
            both = keep & np.roll(keep, 1, axis)
            np.testing.assert_allclose(both.mean(), (1 - rate) ** 2, atol=4 * deviation)
    np.testing.assert_allclose((first & second).mean(), (1 - rate) ** 2, atol=4 * deviation)
    with jax.set_mesh(tfm.make_mesh(2, 2, 2)):
        sharded = jax.device_put(x, NamedSharding(jax.sharding.get_mesh(), P("data", None, "tensor")))
        again = jax.jit(lambda x: ops.dropout(x, rate, jax.random.key(0)))(sharded)
    np.testing.assert_array_equal(np.asarray(again) > 0, first)


def test_dropout_depends_on_the_key():
    x = jnp.ones((4, 5, 6))
    first, same, different = (tfm.dropout(x, 0.5, jax.random.key(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, different)
    np.testing.assert_array_equal(first, np.where(jax.random.bernoulli(jax.random.key(0), 0.5, x.shape), 2, 0))


def test_no_dropout_without_a_key_or_a_rate():
    x = normal(0, 2, 3)
    assert tfm.dropout(x, 0.5, None) is x
    assert tfm.dropout(x, 0.0, jax.random.key(0)) is x
    assert tfm.dropout(x.astype(jnp.bfloat16), 0.5, jax.random.key(0)).dtype == jnp.bfloat16


def test_split_passes_on_that_there_is_no_key():
    assert ops.split(None, 3) == (None, None, None)
    keys = ops.split(jax.random.key(0), 3)
    assert len({tuple(jax.random.key_data(key).tolist()) for key in keys}) == 3
