import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params

import tfm

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.override(
    tfm.Config(layers=4, heads=6, kv_heads=3, width=12, ffn=16, vocab=60, init_std=0.3, dropout=0.0),
    {"position": "t5", "position.buckets": 12, "position.max_distance": 20, "period": 2},
    {"period.0.mixer": "softmax", "period.0.mixer.pattern": "sliding", "period.0.mixer.pattern.window": 3},
)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_buckets_are_a_loop_over_pairs(bidirectional):
    """Short distances have a bucket each; those up to 20 share ever wider ones; the rest is in the last."""
    table = jax.device_put(np.float32(np.random.default_rng(0).normal(size=(12, 3, 2))))
    bias, rows = np.asarray(tfm.T5Bias(table, bidirectional, 20).dense(40, 50)), np.asarray(table)
    buckets = 6 if bidirectional else 12
    exact = buckets // 2
    for i in range(40):
        for j in range(50):
            later, distance = (j > i, abs(j - i)) if bidirectional else (False, max(i - j, 0))
            bucket = distance
            if distance >= exact:
                fraction = math.log(distance / exact) / math.log(20 / exact)
                bucket = min(exact + int(fraction * (buckets - exact)), buckets - 1)
            np.testing.assert_array_equal(bias[0, :, :, i, j], rows[bucket + buckets * later])


@pytest.mark.parametrize("causal", [False, True])
def test_an_encoder_tells_both_sides_apart_and_a_decoder_has_one(causal):
    table = jnp.zeros((12, 3, 2))
    context = tfm.AttentionContext(jnp.arange(4)[None], causal=causal)
    bias = tfm.position_of(CONFIG.position).prepare(tfm.LayerCall(CONFIG.position, CONFIG, table), context)
    assert bias == tfm.T5Bias(table, not causal, 20)


def test_kinds_of_layers_with_the_same_options_share_a_table():
    specs = tfm.encoder_specs(CONFIG)
    assert len(specs.layers.period) == 2
    (table,) = specs.positions
    assert (table.axes, table.shape, table.decay) == ("rKG", (12, 3, 2), True)
    rest = tfm.count_params(tfm.encoder_specs(tfm.override(CONFIG, {"position": "none"})))
    assert tfm.count_params(specs) == rest + 12 * 6


def test_kinds_of_layers_with_options_of_their_own_have_tables_of_their_own():
    config = tfm.override(CONFIG, {"period.1.position": "t5", "period.1.position.buckets": 8})
    specs = tfm.encoder_specs(config)
    assert [table.shape for table in specs.positions] == [(12, 3, 2), (8, 3, 2)]


@pytest.mark.slow
def test_the_gradient_of_a_shared_table_is_the_sum_over_its_layers():
    """Kinds that differ by a trifle have tables of their own, and equal parameters: their gradients add up."""
    shared = dataclasses.replace(CONFIG, layers=2, scan=False)
    values = {"period.1.position": "t5", "period.1.position.buckets": 12, "period.1.position.max_distance": 21}
    unshared = tfm.override(shared, values)
    model = random_params(tfm.encoder_specs(shared))
    model2 = model.replace(positions=model.positions * 2)
    tokens = jnp.array([[5, 59, 0, 7, 7, 31]])  # shorter than either distance
    weights = jax.device_put(np.float32(np.random.default_rng(1).normal(size=(1, 6, 12))))

    def gradients(config, model):
        loss = lambda model: (tfm.encoder(model, config, tokens) * weights).sum()
        return jax.jit(jax.grad(loss))(model).positions

    first, second = gradients(unshared, model2)
    (together,) = gradients(shared, model)
    np.testing.assert_allclose(first + second, together, rtol=1e-3, atol=1e-5)
    assert np.abs(first).max() > 0.01
    assert np.abs(second).max() > 0.01
