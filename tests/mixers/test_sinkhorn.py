"""Sparse Sinkhorn attention: its mixtures of blocks, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from variants import VARIANTS

import tfm
from tfm.config.mixers import Sinkhorn
from tfm.mixers.clustered.sinkhorn import Blocks, mixtures

pytestmark = pytest.mark.slow

SCORES = np.random.default_rng(0).normal(size=(2, 3, 6, 6)).astype(np.float32) + 1


def blocks(causal, valid=None):
    """Six blocks of two tokens."""
    valid = np.ones((2, 6, 2), bool) if valid is None else valid
    return Blocks(None, None, None, jnp.asarray(valid), causal)


def test_mixtures_are_doubly_stochastic():
    mixture = np.asarray(mixtures(SCORES, blocks(False), Sinkhorn(iterations=50)))
    np.testing.assert_allclose(mixture.sum(2), 1, atol=1e-3)
    np.testing.assert_allclose(mixture.sum(3), 1, atol=1e-3)
    assert mixture.min() >= 0
    noisy = mixtures(SCORES, blocks(False), Sinkhorn(iterations=50), jax.random.key(0))
    assert np.abs(noisy - mixture).max() > 0.1


def test_mixtures_leave_out_blocks_of_padding():
    """A block with one token is none of these."""
    valid = np.ones((2, 6, 2), bool)
    valid[:, 3, 1], valid[:, 4:] = False, False
    mixture = mixtures(SCORES, blocks(False, valid), Sinkhorn())
    np.testing.assert_allclose(
        mixture[:, :, :4, :4],
        mixtures(SCORES[:, :, :4, :4], Blocks(*[None] * 3, jnp.ones((2, 4, 2), bool), False), Sinkhorn()),
        rtol=1e-5,
    )
    assert np.abs(mixture[:, :, 4:]).max() == np.abs(mixture[:, :, :, 4:]).max() == 0


def test_causal_mixtures_do_not_depend_on_later_blocks():
    mixture = np.asarray(mixtures(SCORES, blocks(True), Sinkhorn()))
    assert (mixture[:, :, *np.triu_indices(6)] == 0).all()
    assert (mixture[:, :, *np.tril_indices(6, -1)] > 0).all()
    later = SCORES.copy()
    later[:, :, 4:] = 9.0
    np.testing.assert_array_equal(mixtures(later, blocks(True), Sinkhorn())[:, :, :4], mixture[:, :, :4])


@pytest.mark.slow
def test_a_text_is_read_as_its_beginning_alone():
    """No state of a decoder depends on how long the text goes on."""
    config = VARIANTS["sinkhorn"].config
    params = tfm.init(tfm.encoder_specs(config), jax.random.key(0))
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 60, (2, 13)), jnp.int32)
    states = tfm.decoder(params, config, tokens)
    for length in (5, 9):
        beginning = tfm.decoder(params, config, tokens[:, :length])
        np.testing.assert_allclose(states[:, :length], beginning, rtol=1e-4, atol=1e-5)


def test_refusals():
    config = VARIANTS["sinkhorn"].config
    params = tfm.init(tfm.causal_lm_specs(config), jax.random.key(0))
    with pytest.raises(tfm.VariantError, match="^sinkhorn cuts the text of a row into blocks; put every text into"):
        tfm.encoder(params.decoder, config, jnp.zeros((1, 4), jnp.int32), tfm.segments(jnp.ones((1, 4), jnp.int32)))
    with pytest.raises(tfm.VariantError, match="^sinkhorn reads a text as one piece and cannot generate; try"):
        tfm.generate(params, config, [[1, 2]], 2)
