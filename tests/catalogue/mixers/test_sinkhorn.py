"""Sparse Sinkhorn attention: its mixtures of blocks, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from random_params import random_params
from variants import VARIANTS

import tfm
from tfm.catalogue.mixers.clustered.sinkhorn import SinkhornBlocks, mixtures
from tfm.catalogue.options.mixers.clustered import Sinkhorn

pytestmark = pytest.mark.slow

SCORES = np.random.default_rng(0).normal(size=(2, 3, 6, 6)).astype(np.float32) + 1


def blocks(causal, valid=None):
    """Six blocks of two tokens."""
    valid = np.ones((2, 6, 2), bool) if valid is None else valid
    return SinkhornBlocks(None, None, None, jnp.asarray(valid), causal)


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
        mixtures(SCORES[:, :, :4, :4], SinkhornBlocks(*[None] * 3, jnp.ones((2, 4, 2), bool), False), Sinkhorn()),
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
    params = random_params(tfm.encoder_specs(config))
    tokens = jax.device_put(np.int32(np.random.default_rng(0).integers(0, 60, (2, 13))))
    states = tfm.decoder(params, config, tokens)
    for length in (5, 9):
        beginning = tfm.decoder(params, config, tokens[:, :length])
        np.testing.assert_allclose(states[:, :length], beginning, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", [None, (2, 2, 2, 1)], ids=["one", "mesh"])
def test_tokens_after_a_state_are_those_of_a_whole_text(sizes):
    """Eight blocks of two tokens; padding before half of the texts, so that their blocks begin in other columns."""
    values = {"mixer.block": 2, "mixer.temperature": 2.0, "layers": 1}
    config = tfm.override(VARIANTS["sinkhorn"].config, values)
    specs = tfm.encoder_specs(config)
    params = random_params(specs)
    tokens, starts = (
        np.random.default_rng(0).integers(0, 60, (4, 16)).astype(np.int32),
        np.array([0, 3, 3, 0], np.int32),
    )
    expected = [tfm.decoder(params, config, jnp.asarray(rows)) for rows in (tokens, tokens[:, 3:])]

    @jax.jit
    def run(params, tokens, starts):
        states, cache = tfm.prefill(params, config, tokens[:, :4], starts, 16)
        parts = [states]
        for first, end in ((4, 5), (5, 9), (9, 10), (10, 16)):
            states, cache = tfm.extend(params, config, tokens[:, first:end], cache)
            parts.append(states)
        return jnp.concatenate(parts, axis=1)

    if sizes is None:
        states = run(params, tokens, starts)
    else:
        mesh = tfm.make_mesh(*sizes)
        with jax.set_mesh(mesh):
            rows = NamedSharding(mesh, tfm.partition("B", (4,), mesh))
            states = run(jax.device_put(params, tfm.shardings(specs, mesh)), *jax.device_put((tokens, starts), rows))
    for row, start in enumerate(starts):
        reference = expected[bool(start)][row]
        np.testing.assert_allclose(np.asarray(states)[row, start:], reference, rtol=1e-5, atol=1e-5)


def test_refusals():
    config = VARIANTS["sinkhorn"].config
    params = random_params(tfm.causal_lm_specs(config))
    with pytest.raises(tfm.VariantError, match="^sinkhorn cuts the text of a row into blocks; put every text into"):
        tfm.encoder(params.decoder, config, jnp.zeros((1, 4), jnp.int32), tfm.segments(jnp.ones((1, 4), jnp.int32)))
