import jax.numpy as jnp
import numpy as np
import pytest

from tfm.catalogue.positions.distances import distances, skew, toeplitz, unskew

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("strict")]


@pytest.mark.parametrize(("queries", "keys", "first"), [(3, 4, 0), (1, 5, 2), (4, 4, -3)])
def test_rows_of_distances_become_rows_of_keys(queries, keys, first):
    """And back: sums by distance; an array of distances alone is equal along its diagonals."""
    i, j = 5 + np.arange(queries), 5 + first + np.arange(keys)
    distance = np.asarray(distances(jnp.asarray(i)[None], jnp.asarray(j)[None]))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, queries, len(distance))).astype(np.float32)
    weights = rng.normal(size=(2, queries, keys)).astype(np.float32)
    expected, sums = np.zeros((2, queries, keys)), np.zeros(x.shape)
    for t, s in np.ndindex(queries, keys):
        column = distance.tolist().index(j[s] - i[t])
        expected[:, t, s] = x[:, t, column]
        sums[:, t, column] = weights[:, t, s]
    np.testing.assert_array_equal(skew(jnp.asarray(x), keys), expected)
    np.testing.assert_array_equal(unskew(jnp.asarray(weights), len(distance)), sums)
    np.testing.assert_array_equal(
        toeplitz(jnp.asarray(distance), queries, keys), j[None].repeat(queries, 0) - i[:, None]
    )


def test_causal_rows_leave_later_keys_out():
    """As many distances as positions, and one for the seam; keys up to the query are right."""
    i = jnp.arange(4)[None]
    distance = distances(i, i, causal=True)
    assert distance.tolist() == [-3, -2, -1, 0, 1]
    square = np.asarray(skew(jnp.broadcast_to(distance, (4, 5)), 4))
    assert all(square[t, s] == s - t for t in range(4) for s in range(t + 1))
    weights = np.tril(np.arange(1.0, 17.0).reshape(4, 4))
    sums = np.asarray(unskew(jnp.asarray(weights, jnp.float32), 5))
    assert sums.tolist() == [[0, 0, 0, 1, 0], [0, 0, 5, 6, 0], [0, 9, 10, 11, 0], [13, 14, 15, 16, 0]]
