"""Windows of a grid as a mask: pair by pair, and which blocks of positions see each other."""

import jax.numpy as jnp
import numpy as np
import pytest
from masks.test_masks import seen_blocks
from oracles.grid import nearest

import tfm
from tfm.catalogue.patterns.neighbourhood import GridNeighbours
from tfm.catalogue.patterns.window_partition import WindowPartition

pytestmark = pytest.mark.usefixtures("strict")

# Rows, columns, the size of a window and its shift; the plain tests have windows that are cut.
FITTING = [(4, 6, 2, 1), (4, 6, 2, 0), (3, 3, 3, 1), (6, 4, 4, 2)]
SHAPES = [(5, 7, 3, 2), *(pytest.param(shape, marks=pytest.mark.slow) for shape in FITTING)]


def rule_of(rows, columns, size, shift):
    """Whether the borders of windows, at shift, shift + size, ..., part two places of a grid."""
    borders = set(range(shift, max(rows, columns), size))

    def part(first, second):
        low, high = sorted((first, second))
        return any(border in borders for border in range(low + 1, high + 1))

    def rule(i, j):
        return not part(i // columns, j // columns) and not part(i % columns, j % columns)

    return rule


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_windows_follow_their_rule_and_know_what_they_skip(shape):
    """Blocks are exact, whatever their size."""
    mask, rule, length = tfm.grid_windows(*shape), rule_of(*shape), shape[0] * shape[1]
    expected = [[rule(i, j) for j in range(length)] for i in range(length)]
    np.testing.assert_array_equal(mask.dense(length)[0], expected)
    for sizes in ((4, 4), (3, 8), (7, 5)):
        blocks = mask.blocks(*sizes, length, length)
        np.testing.assert_array_equal(blocks, seen_blocks(rule, *sizes, length, length))
        first_i, first_j = jnp.arange(0, length, sizes[0])[:, None], jnp.arange(0, length, sizes[1])[None]
        last_i, last_j = (
            jnp.minimum(first + size, length) - 1 for first, size in zip((first_i, first_j), sizes, strict=True)
        )
        np.testing.assert_array_equal(mask.between(first_i, last_i, first_j, last_j), blocks)
    left, right = mask.reach
    distances = [j - i for i in range(length) for j in range(length) if expected[i][j]]
    assert (-left <= min(distances), max(distances) <= right) == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_partition_puts_into_a_row_what_the_mask_shows(shape):
    """Each place meets exactly the places of its window, and all come back where they were."""
    rows, columns, *_ = shape
    windows, length = WindowPartition(*shape), rows * columns
    places = jnp.broadcast_to(jnp.arange(1, length + 1, dtype=jnp.float32)[None, :, None], (2, length, 1))
    split = windows.split(places)
    mask = windows.mask(jnp.zeros((2, length), jnp.int32))
    seen = np.zeros((2, length + 1, length + 1), bool)
    for row, window in enumerate(np.asarray(split)[..., 0].astype(int)):
        allowed = True if mask is None else np.asarray(mask.dense(window.size))[row]
        seen[row // (len(split) // 2)][np.ix_(window, window)] |= allowed
    np.testing.assert_array_equal(
        seen[:, 1:, 1:], np.broadcast_to(tfm.grid_windows(*shape).dense(length), (2, length, length))
    )
    np.testing.assert_array_equal(windows.merge(split), places)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((4, 4, 2, 2), "shift=2 must be at least 0 and less than size=2"), ((4, 0, 2), "columns=0")],
)
def test_windows_that_do_not_exist_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tfm.grid_windows(*arguments)


@pytest.mark.parametrize(("rows", "columns", "size"), [(5, 7, 3), (4, 4, 5), (2, 6, 3), (6, 5, 1)])
def test_neighbourhoods_follow_their_rule_and_hide_no_block(rows, columns, size):
    """A place sees the nearest places in each direction, as many at the borders as within; blocks may show more."""
    mask, length = GridNeighbours(rows, columns, size), rows * columns

    def rule(i, j):
        return all(
            second in nearest(first, min(size, side), side)
            for first, second, side in zip(divmod(i, columns), divmod(j, columns), (rows, columns), strict=True)
        )

    expected = np.array([[rule(i, j) for j in range(length)] for i in range(length)])
    np.testing.assert_array_equal(mask.dense(length)[0], expected)
    assert {*expected.sum(1)} == {min(size, rows) * min(size, columns)}
    np.testing.assert_array_equal(mask.blocks(1, 1, length, length), expected)
    for sizes in ((4, 4), (3, 8), (7, 5)):
        assert (mask.blocks(*sizes, length, length) >= seen_blocks(rule, *sizes, length, length)).all()
    left, right = mask.reach
    distances = [j - i for i, j in np.argwhere(expected)]
    assert (-left <= min(distances), max(distances) <= right) == (True, True)
