"""Reformer: its hashes, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from variants import VARIANTS

import tfm
from tfm.config.mixers import Reformer
from tfm.mixers.clustered.reformer import hashes

pytestmark = pytest.mark.slow


def test_hashes_are_equal_for_equal_directions():
    keys = np.random.default_rng(0).normal(size=(1, 500, 1, 1, 8)).astype(np.float32)
    rotations = np.random.default_rng(1).normal(size=(1, 1, 8, 4, 3)).astype(np.float32)
    labels = np.asarray(hashes(jnp.asarray(keys), jnp.asarray(rotations), (6,)))
    assert set(labels.ravel()) == set(range(6))
    np.testing.assert_array_equal(labels, hashes(jnp.asarray(3 * keys), jnp.asarray(rotations), (6,)))
    near = keys + 0.1 * np.random.default_rng(2).normal(size=keys.shape).astype(np.float32)
    agreement = (labels == np.asarray(hashes(jnp.asarray(near), jnp.asarray(rotations), (6,)))).mean()
    assert agreement > 0.8 > 3 * (labels[:, ::-1] == labels).mean()


def test_refusals():
    with pytest.raises(ValueError, match=r"^buckets=3 must be even; try buckets=4$"):
        Reformer(buckets=3)
    config = tfm.override(VARIANTS["reformer"].config, {"position": "alibi"})
    params = tfm.init(tfm.encoder_specs(config), jax.random.key(0))
    with pytest.raises(tfm.VariantError, match="^reformer does not score all pairs of tokens; try position=learned"):
        tfm.decoder(params, config, jnp.zeros((1, 4), jnp.int32))
