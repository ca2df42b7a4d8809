"""Keys of blocks of tokens: which tokens are in a block, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params
from variants import VARIANTS

import tfm
from tfm.catalogue.patterns.transient import block_of_tokens, block_sums


@pytest.mark.slow
def test_a_last_block_that_is_not_full_joins_the_one_before():
    valid = jnp.arange(8)[None] < jnp.array([[8], [7], [3], [2]])
    blocks = np.where(valid, block_of_tokens(valid, 3), -1)
    assert blocks.tolist() == [
        [0, 0, 0, 1, 1, 1, 1, 1],
        [0, 0, 0, 1, 1, 1, 1, -1],
        [0, 0, 0, -1, -1, -1, -1, -1],
        [-1] * 8,
    ]
    x = np.random.default_rng(0).normal(size=(4, 8, 5)).astype(np.float32)
    sums = block_sums(jnp.asarray(x), jnp.asarray(blocks), 3)
    for row, block in np.ndindex(2, 2):
        np.testing.assert_allclose(sums[row, block], x[row][blocks[row] == block].sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums[2, 0], x[2, :3].sum(0), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_chunks_are_einsum():
    """Values and gradients of a text of several chunks, with padding and the biases of tokens and of blocks."""
    row = VARIANTS["longt5"].config
    tokens = jax.device_put(np.int32(np.random.default_rng(0).integers(0, 60, (2, 150))))
    mask = tfm.padding(jnp.arange(150)[None] < jnp.array([[150], [131]]))
    values = {"length": 150, "mixer.pattern.radius": 9, "mixer.pattern.block": 8}
    results = []
    for kernel in ("einsum", "chunked"):
        config = tfm.override(row, {**values, "kernel": kernel})
        params = random_params(tfm.encoder_specs(config))

        def loss(params, config=config):
            states = tfm.encoder(params, config, tokens, mask)[:, :131]
            return (states * jnp.sin(jnp.arange(16.0))[None, None]).sum(), states

        results.append(jax.jit(jax.grad(loss, has_aux=True))(params))
    for leaf, expected in zip(*map(jax.tree.leaves, results), strict=True):
        scale = float(np.abs(expected).max(initial=0.0))
        np.testing.assert_allclose(leaf, expected, rtol=1e-5, atol=1e-5 * scale + 1e-5)


@pytest.mark.parametrize(
    ("values", "function", "mask", "message"),
    [
        ({}, tfm.decoder, None, "transient mixes later tokens into all; a decoder needs another pattern"),
        ({}, tfm.encoder, tfm.causal(), "transient reads texts with padding, and no other mask"),
        ({"position": "shaw"}, tfm.encoder, None, "transient adds keys that have no distance; try position=t5"),
    ],
)
def test_what_is_refused(values, function, mask, message):
    config = tfm.override(VARIANTS["transient"].config, values)
    params = jax.eval_shape(lambda key: tfm.init(tfm.encoder_specs(config), key), jax.random.key(0))
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda params: function(params, config, jnp.zeros((1, 8), jnp.int32), mask), params)
