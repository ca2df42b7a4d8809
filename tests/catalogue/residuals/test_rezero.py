"""ReZero, x + alpha f(x), against a loop: values, and the gradient of every parameter."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import residuals as oracle

import tfm

pytestmark = pytest.mark.usefixtures("strict")

CONFIG = tfm.override(
    tfm.Config(layers=3, heads=2, width=8, ffn=12, vocab=20, pad_vocab_to=1, length=8, dropout=0.0, init_std=0.3),
    {"residual": "rezero"},
)
RNG = np.random.default_rng(0)
X, WEIGHTS = RNG.normal(size=(2, 2, 4, 8))
NEAR = {"rtol": 1e-5, "atol": 1e-5}


@jax.jit
def forward(layers, x):
    """The states [B,T,D] behind all blocks, and the gradient of their weighted sum by parameters and x."""
    params = dataclasses.replace(tfm.encoder_specs(CONFIG), layers=layers)
    context = tfm.AttentionContext(jnp.arange(4)[None])

    def loss(layers, x):
        states = tfm.stack(dataclasses.replace(params, layers=layers), CONFIG, x, context)[0]
        return (states * jnp.asarray(WEIGHTS, jnp.float32)).sum(), states

    gradient, states = jax.grad(loss, (0, 1), has_aux=True)(layers, x)
    return states, gradient


def by_loop(layers, x):
    """The same states, block by block."""
    return oracle.encoder(oracle.unstacked(layers), x, lambda block, name, x, y: x + block.residual.alpha * y)[0]


def random_layers():
    """Random numbers in place of every parameter."""
    specs = tfm.encoder_specs(CONFIG).layers
    return jax.tree.map(lambda spec: jax.device_put(np.float32(0.4 * RNG.normal(size=spec.shape))), specs)


@pytest.mark.slow
def test_values_and_gradients_are_those_of_a_loop():
    """The gradient of each parameter, along a random direction, is the slope of the loop in float64."""
    layers = random_layers()
    states, gradient = forward(layers, X.astype(np.float32))
    wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), layers)
    x = X.astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(states, by_loop(wide, x), **NEAR)
    leaves, structure = jax.tree.flatten((wide, x))
    slopes = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(gradient)]
    assert any(leaf.shape == (3,) for leaf in leaves), "alpha of each block"
    for index, (leaf, slope) in enumerate(zip(leaves, slopes, strict=True)):
        direction = RNG.normal(size=leaf.shape)
        ahead, behind = (
            by_loop(*jax.tree.unflatten(structure, [*leaves[:index], leaf + step * direction, *leaves[index + 1 :]]))
            for step in (1e-5, -1e-5)
        )
        expected = ((ahead - behind) * WEIGHTS).sum() / 2e-5
        np.testing.assert_allclose((slope * direction).sum(), expected, **NEAR)


@pytest.mark.slow
def test_a_fresh_stack_is_the_identity_and_alpha_alone_learns():
    """The gradient of alpha is the sum of what its branches would add; no other parameter has one yet."""
    layers = oracle.start(tfm.encoder_specs(CONFIG).layers)
    states, (gradient, by_x) = forward(layers, X.astype(np.float32))
    np.testing.assert_array_equal(states, X.astype(np.float32))
    np.testing.assert_array_equal(by_x, WEIGHTS.astype(np.float32))
    (block,) = gradient.period
    branches = []

    def record(block, name, x, y):
        branches.append((y * WEIGHTS).sum())
        return x

    oracle.encoder(oracle.unstacked(layers), X, record)
    np.testing.assert_allclose(block.residual.alpha, np.reshape(branches, (3, 2)).sum(1), **NEAR)
    assert all(np.abs(block.residual.alpha) > 1e-3)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(dataclasses.replace(block, residual=None)))
