import jax.numpy as jnp
import numpy as np
import pytest

from tfm.decoding.cache import repeat_axis, take_parents
from tfm.decoding.candidates import take, top_k

pytestmark = pytest.mark.usefixtures("strict")

BLOCKS = [(1, 7, 3), (2, 512, 3), (3, 25_000, 10), (2, 5056, 80), (2, 640, 6)]
SHAPES = [((6,), 0), ((6, 5), 0), ((3, 6), 1), ((3, 6, 2, 5), 1), ((1, 6, 4, 2, 2, 3), 1)]


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_every_row_is_repeated_in_sequence(shape, axis):
    leaf = np.arange(np.prod(shape)).reshape(shape)
    np.testing.assert_array_equal(repeat_axis(jnp.asarray(leaf), 3, axis), np.repeat(leaf, 3, axis))


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_every_continuation_takes_the_state_of_its_parent(shape, axis):
    """Of two prompts with three continuations; a parent belongs to the same prompt."""
    leaf, parents = np.arange(np.prod(shape)).reshape(shape), np.array([[2, 0, 0], [1, 1, 2]])
    rows = [3 * prompt + parent for prompt in range(2) for parent in parents[prompt]]
    taken = take_parents(jnp.asarray(leaf), jnp.asarray(parents), axis)
    np.testing.assert_array_equal(taken, np.take(leaf, rows, axis))


@pytest.mark.slow
@pytest.mark.parametrize(
    "values", [pytest.param("normal", marks=pytest.mark.slow), "ties", pytest.param("few", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(("rows", "vocab", "k"), BLOCKS, ids=str)
def test_the_largest_scores_are_those_of_a_stable_sort(rows, vocab, k, values):
    """Of equal ones the first; where fewer than k are finite, the first of the others follow."""
    rng = np.random.default_rng(vocab)
    x = rng.normal(size=(rows, 2, vocab)).astype(np.float32)
    offset = rng.normal(size=(rows, 2)).astype(np.float32)
    if values == "ties":
        x, offset = np.round(x) + 0.0, np.round(offset) + 0.0  # no zero has a sign
    if values == "few":
        x = np.where(rng.random(x.shape) < 1 / vocab, x, -np.inf).astype(np.float32)
    scores = (x + offset[..., None]).reshape(rows, -1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]

    def score(values, parents):
        return values + take(jnp.asarray(offset), parents)[..., None]

    largest, index = top_k(jnp.asarray(x), score, k)
    np.testing.assert_array_equal(index, order)
    np.testing.assert_array_equal(largest, np.take_along_axis(scores, order, axis=1))
