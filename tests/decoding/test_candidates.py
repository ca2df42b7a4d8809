import jax.numpy as jnp
import numpy as np
import pytest

from tfm.decoding.cache import repeat_axis, take_parents

pytestmark = pytest.mark.usefixtures("strict")

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
