"""The delta rule: its triangular systems, and its features."""

import jax.numpy as jnp
import numpy as np
import pytest

from tfm.catalogue.mixers.kernels.delta import features, unit_lower_inverse

pytestmark = pytest.mark.slow


def test_the_inverse_of_a_unit_triangle():
    below = np.tril(np.random.default_rng(0).uniform(-1, 1, (2, 7, 7)), -1)
    inverse = unit_lower_inverse(jnp.asarray(below, jnp.float32))
    np.testing.assert_allclose(inverse @ (np.eye(7) + below), np.eye(7)[None].repeat(2, 0), atol=1e-5)


def test_equal_keys_do_not_overflow():
    """Powers of this matrix have elements of 1e18, its inverse has none above 1."""
    inverse = unit_lower_inverse(jnp.tril(jnp.ones((64, 64)), -1))
    np.testing.assert_allclose(inverse, np.eye(64) - np.eye(64, k=-1), atol=1e-5)


def test_features_are_products_of_rectified_channels():
    """Schlag et al. 2021, eq. 37, at nu = 2."""
    x = np.array([0.5, -2.0, 3.0], np.float32)
    halves = [0.5, 0.0, 3.0, 0.0, 2.0, 0.0]
    expected = [halves[i] * halves[(i - n) % 6] for n in (1, 2) for i in range(6)]
    np.testing.assert_allclose(features(jnp.asarray(x), 2), np.array(expected) / sum(expected), rtol=1e-6)
