"""PowerNorm against the algorithm of its paper, and its statistics through training steps."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.norms import norm, norm_specs
from train.settings.optim import Optim
from train.training import optimizer as optim
from train.training import step

pytestmark = pytest.mark.slow

CONFIG = tfm.Config(layers=2, heads=2, width=8, vocab=20, pad_vocab_to=1, length=8, dropout=0.0, norm="power")


def by_loop(x, scale, bias, mean_square, correlation, slope):
    """Shen et al. 2020, algorithm 2, for every feature: y, the gradient of x, and the next statistics."""
    y, x_slope, statistics = np.zeros_like(x), np.zeros_like(x), []
    for feature in range(x.shape[-1]):
        column, hat_slope = x[..., feature], slope[..., feature] * scale[feature]
        psi, nu = np.sqrt(mean_square[feature] + CONFIG.norm_eps), correlation[feature]
        hat = column / psi
        y[..., feature] = scale[feature] * hat + bias[feature]
        x_slope[..., feature] = (hat_slope - nu * hat) / psi
        gamma, product = (hat**2).mean(), (hat * hat_slope).mean()
        next_square = 0.9 * mean_square[feature] + 0.1 * (column**2).mean()
        statistics.append((next_square, nu * (1 - 0.1 * gamma) + 0.1 * product))
    return y, x_slope, np.array(statistics).T


@pytest.mark.usefixtures("strict")
def test_the_algorithm():
    rng = np.random.default_rng(0)
    x, slope = rng.normal(size=(2, 3, 5, 8))
    scale, bias, correlation = rng.normal(size=(3, 8))
    mean_square = rng.uniform(0.5, 2, 8)
    layer = tfm.init(norm_specs(CONFIG), jax.random.key(0))
    leaves = (jnp.asarray(leaf, jnp.float32) for leaf in (scale, bias, mean_square, correlation))
    layer = jax.tree.unflatten(jax.tree.structure(layer), list(leaves))
    np.testing.assert_array_equal(layer.stats.correlation, np.float32(correlation))
    y, backward = jax.vjp(lambda layer, x: norm(CONFIG, layer, x), layer, jnp.asarray(x, jnp.float32))
    change, x_slope = backward(jnp.asarray(slope, jnp.float32))
    expected, expected_slope, statistics = by_loop(x, scale, bias, mean_square, correlation, slope)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(x_slope, expected_slope, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(mean_square + change.stats.mean_square, statistics[0], rtol=1e-5)
    np.testing.assert_allclose(correlation + change.stats.correlation, statistics[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(change.bias, slope.sum((0, 1)), rtol=1e-4, atol=1e-5)


ADAM = Optim(warmup=1)


def loss(params, model, batch, key):
    """A sum over all states."""
    states = tfm.encoder(params, model, batch["tokens"])
    return {"loss": jnp.square(states - 1).sum(), "weight": jnp.float32(batch["tokens"].size)}


def trained(mesh, parts=1, steps=3, options=ADAM, **fields):
    """The parameters after a few steps on four rows."""
    config = dataclasses.replace(CONFIG, **fields)
    specs = tfm.encoder_specs(config)
    optimizer = optim.optimizer(options, 10 * steps, specs)
    state = step.new_state(specs, optimizer, 0, mesh)
    train_step = step.make_train_step(loss, config, optimizer, 0, dropout=False)
    tokens = np.random.default_rng(1).integers(0, 20, (4, 6)).astype(np.int32).reshape(parts, 4 // parts, 6)
    with jax.set_mesh(mesh):
        rows = jax.sharding.NamedSharding(mesh, jax.P(None, *tfm.partition("BT", tokens.shape[1:], mesh)))
        for _ in range(steps):
            state, _ = train_step(state, {"tokens": jax.device_put(tokens, rows)})
    return jax.tree.map(np.asarray, state.params)


def one_device():
    return tfm.make_mesh(1, devices=jax.devices()[:1])


def test_steps_move_statistics_and_the_optimizer_does_not():
    """The mean square of the embeddings after three steps is known: they hardly move at first."""
    params = trained(one_device())
    stats = params.embed.norm.stats
    assert stats.mean_square.shape == (8,)
    tokens = np.random.default_rng(1).integers(0, 20, (4, 6)).astype(np.int32)
    config = tfm.override(CONFIG, {"input.norm": False})
    start = tfm.init(tfm.encoder_specs(CONFIG), jax.random.key(0))
    square = np.square(tfm.embed(start.embed.replace(norm=None), config, tokens)).mean((0, 1))
    np.testing.assert_allclose(stats.mean_square, 0.9**3 + (1 - 0.9**3) * square, atol=2e-3)
    assert np.abs(stats.correlation).max() > 0
    layer = params.layers.period[0].residual.mixer.stats
    assert (layer.mean_square != 1).all()


@pytest.mark.slow
def test_statistics_are_the_same_scanned_unrolled_recomputed_in_parts_and_on_eight_devices():
    expected = trained(one_device())
    mesh = tfm.make_mesh(2, 2, 2, 1)
    for params in (trained(one_device(), scan=False), trained(one_device(), remat="block"), trained(mesh)):
        for leaf, reference in zip(jax.tree.leaves(params), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(leaf, reference, rtol=1e-4, atol=1e-5)
    halves = trained(one_device(), parts=2).embed.norm.stats
    np.testing.assert_allclose(halves.mean_square, expected.embed.norm.stats.mean_square, rtol=1e-4)
