"""Contrastive losses against loops in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm


def vectors(*shape, seed=0):
    x = np.random.default_rng(seed).normal(size=shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.mark.parametrize("sides", [1, 3])
def test_losses_are_those_of_loops(strict, sides):
    """Two parts of three rows; a row lacks its last wrong text, and the last row is empty."""
    queries, candidates = vectors(2, 3, 8), vectors(2, 3, sides, 8, seed=1)
    present = np.ones((2, 3, sides), bool)
    present[0, 1, -1] = sides == 1
    present[1, 2] = False
    expected, nearest = np.zeros((2, 3)), np.zeros((2, 3), bool)
    for p, b in np.ndindex(2, 3):
        logits = {index: queries[p, b] @ candidates[index] / 0.1 for index in np.ndindex(2, 3, sides) if present[index]}
        right = queries[p, b] @ candidates[p, b, 0] / 0.1
        expected[p, b] = np.log(sum(np.exp(value) for value in logits.values())) - right
        nearest[p, b] = right >= max(logits.values()) - 1e-9
    arrays = [jnp.asarray(array, jnp.float32) for array in (queries, candidates)]
    losses, is_right = tfm.in_batch_losses(*arrays, jnp.asarray(present), jnp.full((2, 3), 0.1))
    rows = present[:, :, 0]
    np.testing.assert_allclose(losses[rows], expected[rows], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(is_right[rows], nearest[rows])
    assert np.isfinite(losses).all()
    plain = tfm.in_batch_losses(*arrays, jnp.asarray(present), 0.1)[0]
    np.testing.assert_allclose(plain, losses, rtol=1e-6)


def test_unit_vectors(strict):
    x = np.float32([[3.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(tfm.unit_vectors(x), [[0.6, 0.8], [0, 0]], rtol=1e-6)
    assert np.isfinite(jax.grad(lambda x: tfm.unit_vectors(x).sum())(x)).all()


def test_clip_and_siglip_against_loops(strict):
    """Both directions of a softmax, a decision for each pair; one row is empty; the scale has a limit."""
    first, second = vectors(2, 3, 8), vectors(2, 3, 8, seed=1)
    present = np.ones((2, 3), bool)
    present[1, 0] = False
    rows = [tuple(index) for index in np.argwhere(present)]
    arrays = [jnp.asarray(array, jnp.float32) for array in (first, second)]
    for log_scale, scale in ((1.5, np.exp(1.5)), (9.0, 100.0)):
        losses, _ = tfm.symmetric_losses(*arrays, jnp.asarray(present), jnp.float32(log_scale))
        for row in rows:
            right = scale * first[row] @ second[row]
            forward = np.log(sum(np.exp(scale * first[row] @ second[column]) for column in rows)) - right
            back = np.log(sum(np.exp(scale * second[row] @ first[column]) for column in rows)) - right
            np.testing.assert_allclose(losses[row], (forward + back) / 2, rtol=1e-4, atol=1e-4)
    losses, _ = tfm.sigmoid_losses(*arrays, jnp.asarray(present), jnp.float32(1.5), jnp.float32(-3.0))
    for row in rows:
        logits = {column: np.exp(1.5) * first[row] @ second[column] - 3 for column in rows}
        signs = {column: 1 if column == row else -1 for column in rows}
        expected = sum(np.log1p(np.exp(-signs[column] * logit)) for column, logit in logits.items())
        np.testing.assert_allclose(losses[row], expected, rtol=1e-4)
