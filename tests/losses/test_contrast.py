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


def test_late_losses_are_those_of_loops(strict):
    """Vectors of tokens: zeros of a query add nothing, a copy in a passage changes nothing; a row lacks a passage."""
    queries, candidates = vectors(1, 3, 4, 8), vectors(1, 3, 2, 5, 8, seed=1)
    queries[0, 1, 2:], candidates[0, 2, 0, 3:] = 0, candidates[0, 2, 0, :1]
    present = np.ones((1, 3, 2), bool)
    present[0, 0, 1] = False

    def score(row, index):
        tokens = queries[0, row, :2] if row == 1 else queries[0, row]
        texts = candidates[0][index][:3] if index == (2, 0) else candidates[0][index]
        return sum(max(q @ t for t in texts) for q in tokens) / 2.0

    arrays = [jnp.asarray(array, jnp.float32) for array in (queries, candidates)]
    losses, is_right = tfm.in_batch_losses(*arrays, jnp.asarray(present), 2.0)
    for row in range(3):
        logits = [score(row, index) for index in np.ndindex(3, 2) if present[0][index]]
        right = score(row, (row, 0))
        np.testing.assert_allclose(losses[0, row], np.log(np.exp(logits).sum()) - right, rtol=1e-4)
        assert bool(is_right[0, row]) == (right >= max(logits) - 1e-9)


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


def columns_of(row, ids):
    """Its own column, and those that are not as right; of equal candidates, the first one alone."""
    query, candidate = ids[row]
    return [
        column
        for column, (its_query, its_candidate) in enumerate(ids)
        if column == row
        or not (its_candidate in (query, candidate) or its_query == query or its_candidate in ids[:column, 1])
    ]


def loop_losses(first, second, ids, scale):
    """A softmax over the columns of each row: the definition, row by row."""
    losses, right = np.zeros(len(ids)), np.zeros(len(ids), bool)
    for row in range(len(ids)):
        logits = {column: scale * first[row] @ second[column] for column in columns_of(row, ids)}
        losses[row] = np.log(sum(np.exp(value) for value in logits.values())) - logits[row]
        right[row] = logits[row] >= max(logits.values()) - 1e-6
    return losses, right


# Rows of two parts: 1 is the text of two queries, 10 and 11 of several candidates, 3 of a query and a candidate.
IDS = np.array([[[1, 10], [2, 10], [3, 11]], [[1, 12], [4, 3], [5, 11]]])


@pytest.mark.parametrize("ids", [IDS, np.arange(12).reshape(2, 3, 2)])
def test_what_is_equal_is_no_negative(strict, ids):
    """Of both directions, of all parts, and of decisions for each pair; without equal ones nothing changes."""
    first, second = vectors(2, 3, 8), vectors(2, 3, 8, seed=1)
    flat = first.reshape(6, 8), second.reshape(6, 8), ids.reshape(6, 2)
    present, contents = jnp.ones((2, 3), bool), jnp.asarray(ids)
    arrays = [jnp.asarray(array, jnp.float32) for array in (first, second)]
    sides = contents[:, :, 0], contents[:, :, 1:]
    candidates = arrays[1][:, :, None]
    losses, is_right = tfm.in_batch_losses(arrays[0], candidates, present[:, :, None], 0.5, sides)
    expected, nearest = loop_losses(*flat, 2.0)
    np.testing.assert_allclose(losses.reshape(-1), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(is_right.reshape(-1), nearest)
    back, _ = loop_losses(flat[1], flat[0], flat[2][:, ::-1], 2.0)
    losses, _ = tfm.symmetric_losses(*arrays, present, jnp.log(jnp.float32(2.0)), contents)
    np.testing.assert_allclose(losses.reshape(-1), (expected + back) / 2, rtol=1e-4, atol=1e-5)
    scale, bias = jnp.float32(0.0), jnp.float32(-1.0)
    losses, _ = tfm.sigmoid_losses(*arrays, present, scale, bias, contents)
    for row in range(6):
        total = np.log1p(np.exp(1 - flat[0][row] @ flat[1][row]))
        for column in columns_of(row, flat[2]):
            total += np.log1p(np.exp(flat[0][row] @ flat[1][column] - 1)) if column != row else 0
        np.testing.assert_allclose(losses.reshape(-1)[row], total, rtol=1e-4)


@pytest.mark.slow
def test_a_wrong_text_that_is_a_right_one_elsewhere():
    """A wrong text of the own row counts unless it is equal to the right one; that of an equal query does, too."""
    queries, candidates = vectors(1, 2, 8), vectors(1, 2, 2, 8, seed=1)
    arrays = [jnp.asarray(array, jnp.float32) for array in (queries, candidates)]
    present = jnp.ones((1, 2, 2), bool)
    contents = jnp.asarray([[1, 1]]), jnp.asarray([[[5, 6], [7, 5]]])
    losses, _ = tfm.in_batch_losses(*arrays, present, 1.0, contents)
    logits = np.einsum("bd,mnd->bmn", queries[0], candidates[0])
    first = np.log(np.exp([logits[0, 0, 0], logits[0, 0, 1]]).sum()) - logits[0, 0, 0]
    second = np.log(np.exp([logits[1, 1, 0], logits[1, 0, 1], logits[1, 1, 1]]).sum()) - logits[1, 1, 0]
    np.testing.assert_allclose(losses[0], [first, second], rtol=1e-4)
