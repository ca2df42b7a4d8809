"""Synthesizers and gMLPs; that they are their definitions is in the contracts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.catalogue.mixers.static.synthesizer import factors

pytestmark = pytest.mark.slow

CONFIG = tfm.Config(layers=1, heads=2, width=8, ffn=12, vocab=60, length=10, dropout=0.0)


def forward(values, x, params=None, **context):
    """The result and the weights of a mixer on x [B,T,D], and its parameters."""
    config = tfm.override(CONFIG, values)
    mixer = tfm.mixer_of(config.mixer)
    params = params or random_params(mixer.specs(config.mixer, config))

    @jax.jit
    def run(params, x):
        positions = jnp.broadcast_to(jnp.arange(x.shape[1])[None], x.shape[:2])
        prepared = mixer.prepare(tfm.LayerCall(config.mixer, config), tfm.AttentionContext(positions, **context))
        call = tfm.LayerCall(config.mixer, config, params, prepared, None)
        return mixer.forward(call, x, lambda q, k, projections: (q, k, None), None)

    y, output = run(params, x)
    return y, output.weights, params


def states(seed=0):
    return jax.device_put(np.float32(np.random.default_rng(seed).normal(size=(2, 6, 8))))


def test_random_weights_are_the_same_for_every_text():
    values = {"mixer": "synthesizer", "mixer.terms": "random"}
    _, weights, params = forward(values, states(), record=True)
    np.testing.assert_array_equal(weights, forward(values, states(1), params, record=True)[1])
    assert weights.shape == (2, 2, 1, 6, 6)
    expected = jax.nn.softmax(np.moveaxis(params.random[0][:6, ..., :6], 0, 2), axis=-1)
    np.testing.assert_allclose(weights[0], expected, rtol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 7, 16, 500])
def test_factors_cover_a_length(length):
    first, second = factors(length)
    assert first * second >= length
    assert (first - 1) * second < length


def test_factorized_tables_are_small():
    def count(**options):
        config = tfm.override(CONFIG, {"length": 100, "mixer": "synthesizer"} | options)
        return tfm.count_params(tfm.mixer_of(config.mixer).specs(config.mixer, config).replace(query=None, value=None))

    full = count(**{"mixer.terms": "random"})
    small = count(**{"mixer.terms": "random", "mixer.factorized": True, "mixer.rank": 3})
    assert full - small == 2 * 100 * 100 - 2 * 2 * 100 * 3


def test_a_gmlp_starts_as_a_feed_forward_layer():
    """Its gate is 1 up to a thousandth, so that no token knows another."""
    x = states()
    config = tfm.override(CONFIG, {"mixer": "gmlp"})
    start = tfm.init(tfm.mixer_of(config.mixer).specs(config.mixer, config), jax.random.key(0))
    y, _, params = forward({"mixer": "gmlp"}, x, start)
    hidden = jax.nn.gelu(x @ params.value.kernel + params.value.bias[None, None], approximate=False)
    expected = hidden @ params.output.kernel + params.output.bias[None, None]
    np.testing.assert_allclose(y, expected, atol=2e-3 * np.abs(expected).max())
    assert params.value.kernel.shape == (8, 6)


def test_a_gmlp_needs_an_even_size():
    with pytest.raises(ValueError, match=r"mixer.ffn=7 must be even: one half gates the other"):
        tfm.override(CONFIG, {"mixer": "gmlp", "mixer.ffn": 7})


@pytest.mark.parametrize("tag", ["gmlp", "synthesizer"])
def test_tables_limit_the_length(tag):
    config = tfm.override(CONFIG, {"mixer": tag, "position": "none"})
    assert config.max_length == 10
    with pytest.raises(ValueError, match="10"):
        jax.eval_shape(
            lambda params: tfm.encoder(params, config, jnp.zeros((1, 11), jnp.int32)),
            tfm.abstract(tfm.encoder_specs(config)),
        )
