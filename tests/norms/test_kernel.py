"""The norm of Triton, as jax computes it without a GPU, against those of XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import tfm
from tfm.norms import Norm, fork, kernel, layer_norm, norm, rms_norm

pytestmark = pytest.mark.usefixtures("strict")

# Three groups of rows, the last of them with one row; a width that is no power of two.
SHAPE = (3, 3, 24)


def arrays(shape=SHAPE):
    rng = np.random.default_rng(0)
    sizes = shape, shape[-1:], shape[-1:], (2, *shape)
    return [jnp.asarray(rng.normal(size=size) + 1, jnp.float32) for size in sizes]


@pytest.mark.parametrize("name", ["layer", pytest.param("rms", marks=pytest.mark.slow)])
def test_values_and_gradients(name, monkeypatch):
    """With the gradient of the stream, by two programs that sum parameters' gradients."""
    monkeypatch.setattr(kernel, "PROGRAMS", 2)
    x, scale, bias, weights = arrays()
    bias = bias if name == "layer" else jnp.zeros_like(bias)

    def plain(x, scale, bias):
        rule = layer_norm if name == "layer" else rms_norm
        return (x * weights[0] + rule(Norm(scale, bias), x, 1e-5) * weights[1]).sum()

    def fused(x, scale, bias):
        stream, y = kernel.normalized(x, scale, bias, 1e-5, name == "layer", forked=True)
        return (stream * weights[0] + y * weights[1]).sum()

    expected, actual = (jax.value_and_grad(loss, (0, 1, 2))(x, scale, bias) for loss in (plain, fused))
    count = 3 if name == "layer" else 2  # RMS norm has no bias
    for a, b in zip(actual[1][:count], expected[1][:count], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5)


@pytest.mark.slow
def test_without_a_stream_and_a_bias_on_a_mesh():
    x, scale, _, weights = arrays((4, 3, 24))
    loss = lambda x, scale: (kernel.normalized(x, scale, None, 1e-5, True) * weights[0]).sum()
    plain = lambda x, scale: (layer_norm(Norm(scale, None), x, 1e-5) * weights[0]).sum()
    mesh = tfm.make_mesh(4, 2, 1)
    with jax.set_mesh(mesh):
        sharded = jax.device_put(x, NamedSharding(mesh, P("data")))
        actual = jax.jit(jax.value_and_grad(loss, (0, 1)))(sharded, scale)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(jax.value_and_grad(plain, (0, 1))(x, scale)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_models_take_it_where_it_is_asked_for(monkeypatch):
    """On a GPU, in 16 bits; both results are those of the plain norm."""
    calls, original = [], kernel.normalized
    monkeypatch.setattr("tfm.norms.platform", lambda: "gpu")
    monkeypatch.setattr(kernel, "normalized", lambda *arguments: calls.append(arguments) or original(*arguments))
    x, scale, bias, _ = arrays()
    layer, half = Norm(scale, bias), x.astype(jnp.bfloat16)
    config = tfm.Config(width=SHAPE[-1], kernel="triton")
    stream, y = fork(config, layer, half)
    np.testing.assert_array_equal(stream, half)
    np.testing.assert_allclose(
        y.astype("f4"), layer_norm(layer, half, config.norm_eps).astype("f4"), rtol=1e-2, atol=1e-2
    )
    np.testing.assert_array_equal(norm(config, layer, half), y)
    assert len(calls) == 2
    norm(config, layer, x), norm(tfm.Config(width=SHAPE[-1]), layer, half)
    assert len(calls) == 2
