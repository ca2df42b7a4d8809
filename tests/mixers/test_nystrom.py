"""Nystromformer: as many landmarks as tokens are attention; padding is never averaged."""

import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.config.mixers.fewer_keys import Nystrom
from tfm.mixers.fewer_keys.nystrom import landmark_shares, nystrom

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
Q = jnp.asarray(RNG.normal(size=(2, 6, 2, 2, 4)), jnp.float32)
K, V = (jnp.asarray(RNG.normal(size=(2, 6, 2, 4)), jnp.float32) for _ in range(2))


def test_as_many_landmarks_as_tokens_are_attention():
    np.testing.assert_allclose(nystrom(Q, K, V, Nystrom(6, 40)), tfm.attend(Q, K, V), rtol=1e-2, atol=1e-3)


def test_a_text_without_tokens_is_finite():
    valid = jnp.zeros((2, 6), bool)
    assert jnp.isfinite(nystrom(Q, K, V, Nystrom(3), valid)).all()


def test_tokens_of_landmarks():
    """Five tokens around padding for three landmarks: 2, 2 and 1; two tokens: a landmark each."""
    valid = jnp.array([[1, 1, 0, 1, 1, 1, 0], [0, 1, 0, 0, 0, 1, 0]], bool)
    shares = landmark_shares(valid, 7, 3)
    segments = np.where(shares.any(2), shares.argmax(2), -1)
    assert segments.tolist() == [[0, 0, -1, 1, 1, 2, -1], [-1, 0, -1, -1, -1, 1, -1]]
