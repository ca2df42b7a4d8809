"""Batch normalization against plain jnp, and its running statistics through training steps; and no norm at all."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layers.test_power_norm import loss, one_device, trained

import tfm
from tfm.norms import norm, norm_specs
from train.settings.optim import Optim
from train.tasks.table import AnyRun

CONFIG = tfm.Config(layers=2, heads=2, width=8, vocab=20, pad_vocab_to=1, length=8, dropout=0.0, norm="batch")


def plain(scale, bias, x):
    """Ioffe & Szegedy 2015, algorithm 1."""
    mean, variance = x.mean((0, 1), keepdims=True), x.var((0, 1), keepdims=True)
    return (x - mean) / jnp.sqrt(variance + CONFIG.norm_eps) * scale[None, None] + bias[None, None]


@pytest.mark.usefixtures("strict")
def test_what_is_differentiated_has_the_statistics_of_the_batch():
    rng = np.random.default_rng(0)
    x, slope = (jax.device_put(np.float32(rng.normal(1.0, 2.0, (3, 5, 8)))) for _ in range(2))
    mean, variance, scale, bias = (jax.device_put(np.float32(rng.uniform(0.5, 2, 8))) for _ in range(4))
    layer = tfm.init(norm_specs(CONFIG), jax.random.key(0))
    layer = layer.replace(scale=scale, bias=bias, stats=layer.stats.replace(mean=mean, variance=variance))
    x_in_numpy, *vectors = map(np.asarray, (x, mean, variance, scale, bias))
    running = (x_in_numpy - vectors[0]) / np.sqrt(vectors[1] + CONFIG.norm_eps) * vectors[2] + vectors[3]
    np.testing.assert_allclose(norm(CONFIG, layer, x), running, rtol=1e-5, atol=1e-5)

    y, backward = jax.vjp(lambda layer, x: norm(CONFIG, layer, x), layer, x)
    change, x_slope = backward(slope)
    expected, plain_backward = jax.vjp(plain, scale, bias, x)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    for actual, wanted in zip((change.scale, change.bias, x_slope), plain_backward(slope), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean + change.stats.mean, 0.9 * mean + 0.1 * x.mean((0, 1)), rtol=1e-5)
    np.testing.assert_allclose(variance + change.stats.variance, 0.9 * variance + 0.1 * x.var((0, 1)), rtol=1e-5)


@pytest.mark.slow
def test_statistics_are_the_same_scanned_unrolled_recomputed_and_on_eight_devices():
    by_sgd = partial(trained, options=Optim(name="sgd", rate=1e-2, warmup=1), norm="batch")
    expected = by_sgd(one_device())
    mesh = tfm.make_mesh(2, 2, 2, 1)
    for params in (by_sgd(one_device(), scan=False), by_sgd(one_device(), remat="block"), by_sgd(mesh)):
        for leaf, reference in zip(jax.tree.leaves(params), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(leaf, reference, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_running_statistics_come_near_those_of_the_batch():
    """Of one batch, after many steps that hardly move anything else."""
    params = trained(one_device(), steps=150, options=Optim(warmup=1, rate=1e-9), norm="batch")
    config = dataclasses.replace(CONFIG, norm="batch")
    batch = {"tokens": jax.device_put(np.int32(np.random.default_rng(1).integers(0, 20, (4, 6))))}
    params = jax.tree.map(jax.device_put, params)
    in_evaluation = loss(params, config, batch, None)["loss"]
    in_training = jax.value_and_grad(lambda params: loss(params, config, batch, None)["loss"])(params)[0]
    np.testing.assert_allclose(in_evaluation, in_training, rtol=2e-2)


def test_no_norm_has_no_parameters():
    config = dataclasses.replace(CONFIG, norm="none")
    assert jax.tree.leaves(norm_specs(config)) == []
    x = jnp.ones((2, 3, 8))
    assert norm(config, norm_specs(config), x) is x


@pytest.mark.parametrize("name", ["batch", "power"])
def test_running_state_needs_gradients_as_they_are(name):
    model = tfm.Config(norm=name, dtype="float16")
    with pytest.raises(ValueError, match=f"norm={name} changes its state with gradients, and float16 scales them"):
        AnyRun(model=model)
    with pytest.raises(ValueError, match=f"running state, and norm={name} has some; try norm=layer"):
        tfm.Config(norm=name, share_layers=True)
