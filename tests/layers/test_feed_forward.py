import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layers.blocks import run_block
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


def test_dropout_behind_the_activation(fill):
    """Each output is that of some hidden units, twice as large, and the mean over keys is the output of all."""
    config = tfm.Config(heads=1, width=4, ffn=3, bias=False, activation="relu", ffn_dropout=0.5)
    layer, x = fill(tfm.feed_forward_specs(config)), jnp.ones((1, 400, 4))
    dropped = np.asarray(tfm.feed_forward(layer, config, x, jax.random.key(0)))[0]
    hidden = np.maximum(np.ones(4) @ np.asarray(layer.up.kernel, np.float64), 0)
    kept = np.array(list(itertools.product([0, 2], repeat=3)))
    possible = (kept * hidden) @ np.asarray(layer.down.kernel, np.float64)
    distances = np.abs(dropped[:, None] - possible).max(-1)
    assert distances.min(1).max() < 1e-5
    assert len(set(distances.argmin(1))) > 1
    np.testing.assert_array_equal(tfm.feed_forward(layer, config, x)[0, 0], tfm.feed_forward(layer, config, x)[0, 1])


@pytest.mark.slow
def test_a_block_drops_inside_its_feed_forward_layer(fill):
    config = tfm.Config(layers=1, heads=2, width=8, ffn=12, dropout=0.0, ffn_dropout=0.5)
    layer, x = fill(tfm.block_specs(config.kinds[0], config)), jnp.ones((1, 3, 8))
    outputs = [run_block(layer, config, x, key=key)[0] for key in (None, jax.random.key(0), jax.random.key(1))]
    assert not np.allclose(outputs[0], outputs[1])
    assert not np.allclose(outputs[1], outputs[2])


def test_experts_refuse_it():
    with pytest.raises(ValueError, match=r"ffn_dropout=0\.1 is for feed_forward=dense alone"):
        tfm.override(tfm.Config(), {"ffn_dropout": 0.1, "feed_forward": "experts"})


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
