import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tfm
from tfm.attention.case import decompose

pytestmark = pytest.mark.usefixtures("strict", "quick")

T, S = 5, 7
VALID = np.array([[1, 1, 1, 0, 0, 0, 0], [0, 1, 1, 1, 1, 0, 1]], bool)
QUERIES = np.array([[1, 1, 2, 2, 0], [3, 1, 1, 3, 2]])
KEYS = np.array([[1, 1, 2, 2, 0, 0, 0], [3, 1, 1, 3, 2, 2, 2]])
LENGTHS = np.array([2, 0])

# name: the mask, and the same rule for example b, query i and key j
MASKS = {
    "causal": (tfm.causal(), lambda b, i, j: j <= i),
    "window": (tfm.window(2, 1), lambda b, i, j: i - 2 <= j <= i + 1),
    "left": (tfm.window(1, None), lambda b, i, j: j >= i - 1),
    "all": (tfm.window(None, None), lambda b, i, j: True),
    "padding": (tfm.padding(jnp.asarray(VALID)), lambda b, i, j: VALID[b, j]),
    "segments": (tfm.segments(jnp.asarray(QUERIES), jnp.asarray(KEYS)), lambda b, i, j: QUERIES[b, i] == KEYS[b, j]),
    "prefix": (tfm.prefix(jnp.asarray(LENGTHS)), lambda b, i, j: j < LENGTHS[b]),
    "since": (tfm.left_padding(jnp.asarray(LENGTHS)), lambda b, i, j: j >= LENGTHS[b]),
}


def table(rule):
    return np.array([[[bool(rule(b, i, j)) for j in range(S)] for i in range(T)] for b in range(2)])


def whole(mask):
    dense = mask.dense(T, S)
    assert dense.dtype == bool
    assert dense.shape in ((1, T, S), (2, T, S))
    return np.broadcast_to(dense, (2, T, S))


@pytest.mark.parametrize("name", MASKS)
def test_masks_follow_their_rules(name):
    mask, rule = MASKS[name]
    np.testing.assert_array_equal(whole(mask), table(rule))


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(MASKS, 2)))
def test_masks_combine(one, other):
    (mask, rule), (mask2, rule2) = MASKS[one], MASKS[other]
    np.testing.assert_array_equal(whole(mask & mask2), table(lambda b, i, j: rule(b, i, j) and rule2(b, i, j)))
    np.testing.assert_array_equal(whole(mask | mask2), table(lambda b, i, j: rule(b, i, j) or rule2(b, i, j)))


@pytest.mark.parametrize("name", [*MASKS, "combined"])
def test_a_mask_at_some_positions_is_a_part_of_the_whole(name):
    """Shared positions [1,T] and positions of each example [B,T]."""
    mask = (MASKS["causal"][0] & MASKS["segments"][0]) | MASKS["prefix"][0] if name == "combined" else MASKS[name][0]
    dense = whole(mask)
    i, j = np.array([2, 3, 4]), np.array([1, 2, 4, 6])
    shared = np.broadcast_to(mask(jnp.asarray(i)[None], jnp.asarray(j)[None]), (2, 3, 4))
    np.testing.assert_array_equal(shared, dense[:, i][:, :, j])
    own_i, own_j = np.array([[0, 4, 1], [3, 3, 2]]), np.array([[6, 0, 1, 3], [2, 5, 4, 0]])
    own = np.broadcast_to(mask(jnp.asarray(own_i), jnp.asarray(own_j)), (2, 3, 4))
    np.testing.assert_array_equal(own, [dense[b][own_i[b]][:, own_j[b]] for b in range(2)])


def test_as_many_keys_as_queries_unless_told():
    np.testing.assert_array_equal(tfm.causal().dense(4), np.tril(np.ones((4, 4), bool))[None])
    ids = jnp.asarray(QUERIES)
    np.testing.assert_array_equal(tfm.segments(ids).dense(T), QUERIES[:, :, None] == QUERIES[:, None, :])


def test_padding_takes_any_flags():
    np.testing.assert_array_equal(tfm.padding(jnp.array([[1, 0, 2]])).dense(1, 3), [[[True, False, True]]])
    np.testing.assert_array_equal(tfm.padding([[True, False]]).dense(1, 2), [[[True, False]]])


def test_masks_are_pytrees():
    """A compound mask passes through jit, vmap and scan as an argument."""

    def compound(lengths, valid):
        return (tfm.causal() | tfm.prefix(lengths)) & tfm.padding(valid)

    masks = [compound(jnp.array([n, n + 1]), jnp.asarray(VALID)) for n in range(3)]
    expected = np.stack([mask.dense(T, S) for mask in masks])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *masks)
    np.testing.assert_array_equal(jax.jit(lambda mask: mask.dense(T, S))(masks[1]), expected[1])
    np.testing.assert_array_equal(jax.vmap(lambda mask: mask.dense(T, S))(stacked), expected)
    np.testing.assert_array_equal(jax.lax.scan(lambda _, mask: (None, mask.dense(T, S)), None, stacked)[1], expected)


def test_parts_of_a_mask():
    """All parts together are the mask again; what is not a plain `&` of known kinds is left whole."""
    either = MASKS["causal"][0] | MASKS["prefix"][0]
    mask = (
        MASKS["window"][0]
        & MASKS["padding"][0]
        & MASKS["segments"][0]
        & either
        & MASKS["since"][0]
        & MASKS["left"][0]
        & MASKS["segments"][0]
    )
    found = decompose(mask)
    assert found.pattern == tfm.window(1, 1)
    assert (found.segments, found.keys) == (MASKS["segments"][0], (MASKS["padding"][0], MASKS["since"][0]))
    assert found.rest == (either, MASKS["segments"][0])
    again = functools.reduce(tfm.Mask.__and__, [*found.keys, *found.rest, found.pattern & found.segments])
    np.testing.assert_array_equal(whole(again), whole(mask))
    assert decompose(None) == decompose(tfm.window(None, None))


def test_a_mask_of_ones_own():
    """A subclass with one method joins in."""

    class Even(tfm.Mask):
        def __call__(self, i, j):
            return (j % 2 == 0)[:, None, :]

    np.testing.assert_array_equal(
        whole(Even() & MASKS["causal"][0]),
        table(lambda b, i, j: j % 2 == 0 and j <= i),
    )
