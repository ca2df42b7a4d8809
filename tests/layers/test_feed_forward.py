import math

import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm

pytestmark = pytest.mark.usefixtures("strict")


def erf_gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def silu(x):
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("name", "act", "gated"),
    [("gelu", erf_gelu, False), ("silu", silu, False), ("swiglu", silu, True), ("geglu", erf_gelu, True)],
)
def test_feed_forward(fill, name, act, gated, bias):
    """down(act(up x)), and gated down(act(gate x) * up x)."""
    config = tfm.Config(heads=1, width=6, ffn=9, activation=name, bias=bias)
    layer = fill(tfm.feed_forward_specs(config))
    x = np.random.default_rng(1).normal(size=(2, 5, 6)).astype(np.float32)

    def through(part, x):
        return x @ np.asarray(part.kernel, np.float64) + (np.asarray(part.bias) if bias else 0)

    hidden = act(through(layer.gate, x)) * through(layer.up, x) if gated else act(through(layer.up, x))
    np.testing.assert_allclose(tfm.feed_forward(layer, config, x), through(layer.down, hidden), rtol=1e-5, atol=1e-5)


def test_specs():
    plain = tfm.feed_forward_specs(tfm.Config(width=6, heads=1, ffn=9))
    assert plain.gate is None
    assert (plain.up.kernel.shape, plain.up.bias.shape, plain.down.kernel.shape, plain.down.bias.shape) == (
        (6, 9),
        (9,),
        (9, 6),
        (6,),
    )
    assert tfm.feed_forward_specs(tfm.Config(activation="swiglu", bias=False)).gate.bias is None


def test_up_and_gate_start_differently():
    layer = random_params(tfm.feed_forward_specs(tfm.Config(width=8, activation="swiglu")))
    assert not np.array_equal(layer.up.kernel, layer.gate.kernel)
    assert layer.up.kernel.dtype == jnp.float32
