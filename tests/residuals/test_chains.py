"""Residual schemes without norms, or with scaled streams: the forward pass against numpy loops, and its gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import residuals as oracle

import tfm

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("strict")]

BASE = tfm.override(
    tfm.Config(layers=3, heads=2, width=8, vocab=20, pad_vocab_to=1, length=8, dropout=0.0, init_std=0.3),
    {"input.norm": False},
)
TOKENS = jnp.array([[1, 2, 3, 4], [5, 6, 7, 8]])

JOINS = {
    "tfixup": lambda block, name, x, y: x + y,
    "dtfixup": lambda block, name, x, y: x + y,
    "admin": lambda block, name, x, y: oracle.normalized(
        getattr(block.residual.norms, name), block.residual.scales[name] * x + y
    ),
    "deepnorm": lambda block, name, x, y: oracle.normalized(getattr(block.residual, name), 6**0.25 * x + y),
}


def parameters(specs):
    """Random numbers in place of every parameter."""
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda spec: jax.device_put(np.float32(0.4 * rng.normal(size=spec.shape))), specs)


@pytest.mark.parametrize("scheme", JOINS)
def test_the_forward_pass_is_that_of_a_loop_and_the_gradient_its_slope(scheme):
    config = tfm.override(BASE, {"residual": scheme})
    params = parameters(tfm.encoder_specs(config))
    weights = np.random.default_rng(1).normal(size=(*TOKENS.shape, config.width)).astype(np.float32)

    def loss(params):
        states = tfm.encoder(params, config, TOKENS)
        return (states * weights).sum(), states

    def by_loop(params):
        x = oracle.embedded(params, config, TOKENS)
        return oracle.encoder(oracle.unstacked(params.layers), x, JOINS[scheme])[0]

    gradient, states = jax.jit(jax.grad(loss, has_aux=True))(params)
    np.testing.assert_allclose(states, by_loop(params), rtol=1e-4, atol=1e-4)
    squares = sum(float(jnp.square(leaf).sum()) for leaf in jax.tree.leaves(gradient))
    step = 1e-2 / squares**0.5
    ahead, behind = (
        by_loop(jax.tree.map(lambda leaf, slope, sign=sign: leaf + sign * step * slope, params, gradient))
        for sign in (1, -1)
    )
    slope = ((ahead - behind) * weights).sum() / (2 * step)
    np.testing.assert_allclose(slope, squares, rtol=0.02)
