import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm
from tfm.catalogue.positions.alibi import slopes_of

pytestmark = pytest.mark.usefixtures("strict")


def test_slopes_of_eight_heads_halve():
    """1/2, 1/4 ... 1/256 (Press et al. 2022, section 3); head n = k * G + g."""
    bias = tfm.alibi(8, kv_heads=2).dense(3, 5)
    assert (bias.shape, bias.dtype) == ((1, 2, 4, 3, 5), jnp.float32)
    for k in range(2):
        for g in range(4):
            slope = 0.5 ** (k * 4 + g + 1)
            for i in range(3):
                for j in range(5):
                    assert float(bias[0, k, g, i, j]) == pytest.approx(-slope * abs(i - j), rel=1e-6)


def test_slopes_of_six_heads():
    slopes = -np.asarray(tfm.alibi(6).dense(1, 2))[0, :, 0, 0, 1]
    np.testing.assert_allclose(slopes, [2 ** (-8 * n / 6) for n in range(1, 7)], rtol=1e-6)


@pytest.mark.parametrize("heads", [3, 6, 12, 4])
def test_slopes_of_bloom_and_mpt(heads):
    """Those of 2, 4 or 8 heads, then every second one of twice as many; those of 4 heads are the plain ones."""
    power = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * n / power) for n in range(1, power + 1)]
    slopes += [2 ** (-4 * n / power) for n in range(1, 2 * (heads - power), 2)]
    np.testing.assert_allclose(slopes_of(heads, True), slopes, rtol=1e-12)


def test_a_bias_at_some_positions_is_a_part_of_the_dense_one():
    bias = tfm.alibi(4, kv_heads=2)
    i, j = np.array([3, 4]), np.array([1, 2, 5])
    part = bias(jnp.asarray(i)[None], jnp.asarray(j)[None])
    np.testing.assert_array_equal(part, np.asarray(bias.dense(6))[:, :, :, i][..., j])


def test_a_bias_is_a_pytree():
    bias = tfm.alibi(4)
    np.testing.assert_array_equal(jax.jit(lambda bias: bias.dense(3))(bias), bias.dense(3))
    assert isinstance(bias, tfm.ScoreBias)


@pytest.mark.slow
def test_models_have_the_slopes_of_their_heads():
    """The weights of a layer are those of its queries and keys with the bias."""
    config = tfm.override(
        tfm.Config(layers=1, heads=4, kv_heads=2, width=16, ffn=24, vocab=60, init_std=0.3, dropout=0.0),
        {"position": "alibi"},
    )
    model = random_params(tfm.encoder_specs(config))
    x = jax.device_put(np.float32(np.random.default_rng(1).normal(size=(1, 6, 16))))
    context = tfm.AttentionContext(jnp.arange(6)[None], record=True)
    (output,) = tfm.by_layer(config, jax.jit(tfm.stack, static_argnums=1)(model, config, x, context)[1])
    attention = jax.tree.map(lambda leaf: leaf[0], model.layers.period[0].mixer)
    q = tfm.linear(attention.query, "BTD,DKGH->BTKGH", x)
    k = tfm.linear(attention.key, "BTD,DKH->BTKH", x)
    expected = tfm.attention_weights(q, k, None, tfm.alibi(4, 2))
    np.testing.assert_allclose(output.weights, expected, rtol=1e-5, atol=1e-6)
