import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

import tfm
from tfm.masks.distance import as_window, decompose
from tfm.masks.place import Restarted

pytestmark = pytest.mark.usefixtures("strict")

T, S = 5, 7
VALID = np.array([[1, 1, 1, 0, 0, 0, 0], [0, 1, 1, 1, 1, 0, 1]], bool)
QUERIES = np.array([[1, 1, 2, 2, 0], [3, 1, 1, 3, 2]])
KEYS = np.array([[1, 1, 2, 2, 0, 0, 0], [3, 1, 1, 3, 2, 2, 2]])
LENGTHS = np.array([2, 0])
TABLE = ((1, 3), (0, -1), (-1, -1), (2, 3))

# name: the mask, and the same rule for example b, query i and key j
MASKS = {
    "causal": (tfm.causal(), lambda b, i, j: j <= i),
    "window": (tfm.window(2, 1), lambda b, i, j: i - 2 <= j <= i + 1),
    "strided": (tfm.strided(3), lambda b, i, j: (i - j) % 3 == 0),
    "left": (tfm.window(1, None), lambda b, i, j: j >= i - 1),
    "all": (tfm.window(None, None), lambda b, i, j: True),
    "local blocks": (tfm.local_blocks(2, 1), lambda b, i, j: i // 2 - 1 <= j // 2 <= i // 2),
    "global tokens": (tfm.global_tokens(2), lambda b, i, j: i < 2 or j < 2),
    "global places": (tfm.global_places((4, 1, 5)), lambda b, i, j: i in (1, 4, 5) or j in (1, 4, 5)),
    "last tokens": (tfm.last_tokens(3), lambda b, i, j: i >= 3 or j >= 3),
    "summaries": (tfm.summaries(3, 1), lambda b, i, j: j in (2, 5)),
    "chosen blocks": (tfm.chosen_blocks(2, TABLE), lambda b, i, j: j // 2 in TABLE[i // 2]),
    "not": (~tfm.causal(), lambda b, i, j: j > i),
    "padding": (tfm.padding(jnp.asarray(VALID)), lambda b, i, j: VALID[b, j]),
    "segments": (tfm.segments(jnp.asarray(QUERIES), jnp.asarray(KEYS)), lambda b, i, j: QUERIES[b, i] == KEYS[b, j]),
    "prefix": (tfm.prefix(jnp.asarray(LENGTHS)), lambda b, i, j: j < LENGTHS[b]),
    "left padding": (tfm.left_padding(jnp.asarray(LENGTHS)), lambda b, i, j: j >= LENGTHS[b]),
}


def table(rule):
    return np.array([[[bool(rule(b, i, j)) for j in range(S)] for i in range(T)] for b in range(2)])


def dense(mask):
    allowed = mask.dense(T, S)
    assert allowed.dtype == bool
    assert allowed.shape in ((1, T, S), (2, T, S))
    return np.broadcast_to(allowed, (2, T, S))


@pytest.mark.parametrize("name", MASKS)
def test_masks_follow_their_rules(name):
    mask, rule = MASKS[name]
    np.testing.assert_array_equal(dense(mask), table(rule))


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(MASKS, 2)))
def test_masks_combine(first, second):
    (mask, rule), (mask2, rule2) = MASKS[first], MASKS[second]
    np.testing.assert_array_equal(dense(mask & mask2), table(lambda b, i, j: rule(b, i, j) and rule2(b, i, j)))
    np.testing.assert_array_equal(dense(mask | mask2), table(lambda b, i, j: rule(b, i, j) or rule2(b, i, j)))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*MASKS, "combined"])
def test_a_mask_at_some_positions_is_a_part_of_the_dense(name):
    """Shared positions [1,T] and positions of each example [B,T]."""
    mask = (MASKS["causal"][0] & MASKS["segments"][0]) | MASKS["prefix"][0] if name == "combined" else MASKS[name][0]
    allowed = dense(mask)
    i, j = np.array([2, 3, 4]), np.array([1, 2, 4, 6])
    shared = np.broadcast_to(mask(jnp.asarray(i)[None], jnp.asarray(j)[None]), (2, 3, 4))
    np.testing.assert_array_equal(shared, allowed[:, i][:, :, j])
    own_i, own_j = np.array([[0, 4, 1], [3, 3, 2]]), np.array([[6, 0, 1, 3], [2, 5, 4, 0]])
    own = np.broadcast_to(mask(jnp.asarray(own_i), jnp.asarray(own_j)), (2, 3, 4))
    np.testing.assert_array_equal(own, [allowed[b][own_i[b]][:, own_j[b]] for b in range(2)])


def test_by_default_there_are_as_many_keys_as_queries():
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
    """All parts together are the mask again; what is not a plain `&` of known kinds is left as it is."""
    either = MASKS["causal"][0] | MASKS["prefix"][0]
    mask = (
        MASKS["window"][0]
        & MASKS["padding"][0]
        & MASKS["segments"][0]
        & either
        & MASKS["left padding"][0]
        & MASKS["left"][0]
        & MASKS["segments"][0]
    )
    parts = decompose(mask)
    assert parts.pattern == tfm.window(1, 1)
    assert (parts.segments, parts.keys) == (MASKS["segments"][0], (MASKS["padding"][0], MASKS["left padding"][0]))
    assert parts.rest == (either, MASKS["segments"][0])
    again = functools.reduce(tfm.Mask.__and__, [*parts.keys, *parts.rest, parts.pattern & parts.segments])
    np.testing.assert_array_equal(dense(again), dense(mask))
    assert decompose(None) == decompose(tfm.window(None, None))


def test_static_masks_are_the_pattern():
    """Of any kind, and under an `|`; masks that ask about keys alone may stand under an `|` too."""
    keys = MASKS["padding"][0] | MASKS["prefix"][0]
    local = tfm.window(3, 0) | tfm.strided(3)
    parts = decompose(tfm.causal() & keys & local)
    assert parts == (tfm.causal() & local, None, (keys,), ())
    assert as_window(parts.pattern) is None


def test_arrays_that_cannot_be_cut_by_rows():
    """A mask with arrays says that they have rows; masks that hold such a mask are no more shardable than it is."""

    @struct.dataclass
    class Some(tfm.Mask):
        keys: jax.Array

        def __call__(self, i, j):
            return self.keys[j][:, None, :]

    some = Some(jnp.ones(S, bool))
    assert all(mask.shardable for mask, _ in MASKS.values())
    assert (MASKS["padding"][0] & (MASKS["causal"][0] | MASKS["segments"][0])).shardable
    assert not any(mask.shardable for mask in (some, some & MASKS["causal"][0], MASKS["padding"][0] | some))


def random_window(rng):
    left, right = (None if rng.random() < 0.3 else int(rng.integers(-3, 20)) for _ in range(2))
    rule = lambda i, j: (left is None or i - left <= j) and (right is None or j <= i + right)
    return tfm.window(left, right), rule


def random_stride(rng):
    stride = int(rng.integers(1, 9))
    return tfm.strided(stride), lambda i, j: (j - i) % stride == 0


def random_place(rng):
    """A mask that asks where query and key stand, and its rule."""
    size, count = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    before, after = (int(blocks) for blocks in rng.integers(0, 3, 2))
    table = tuple(tuple(map(int, row)) for row in rng.integers(-1, 40, (40, 2)))
    summary = max(1, size - count)
    places = {int(place) for place in rng.integers(0, 40, int(rng.integers(5)))}
    return [
        (tfm.local_blocks(size, before, after), lambda i, j: -before <= j // size - i // size <= after),
        (tfm.global_tokens(count), lambda i, j: i < count or j < count),
        (tfm.summaries(size, summary), lambda i, j: j % size >= size - summary),
        (tfm.chosen_blocks(size, table), lambda i, j: j // size in table[i // size]),
        (tfm.global_places(places), lambda i, j: i in places or j in places),
    ][int(rng.integers(5))]


def seen_blocks(rule, block_q, block_k, queries, keys):
    """Block by block and pair by pair."""
    seen = np.zeros((math.ceil(queries / block_q), math.ceil(keys / block_k)), bool)
    for i, j in itertools.product(range(queries), range(keys)):
        seen[i // block_q, j // block_k] |= rule(i, j)
    return seen


def seeds(count, plain):
    """Seeds of random cases; those from `plain` on are slow tests."""
    return [pytest.param(seed, marks=[] if seed < plain else [pytest.mark.slow]) for seed in range(count)]


@pytest.mark.parametrize("seed", seeds(200, plain=50))
def test_blocks(seed):
    """Exact for windows, strides and their `|`; where masks are joined by `&`, no block is forgotten."""
    rng = np.random.default_rng(seed)
    sizes = *(int(size) for size in rng.choice([1, 2, 4, 8, 16, 100], 2)), *map(int, rng.integers(1, 40, 2))
    window, window_rule = random_window(rng)
    narrow, narrow_rule = random_window(rng)
    place, place_rule = random_place(rng)
    stride, stride_rule = random_stride(rng)
    exact = {
        window: window_rule,
        stride: stride_rule,
        place: place_rule,
        place | window: lambda i, j: place_rule(i, j) or window_rule(i, j),
        window | stride: lambda i, j: window_rule(i, j) or stride_rule(i, j),
    }
    for mask, rule in exact.items():
        np.testing.assert_array_equal(mask.blocks(*sizes), seen_blocks(rule, *sizes))
    padded = tfm.padding(rng.integers(0, 2, (2, sizes[-1])))
    both = {
        window & stride: lambda i, j: window_rule(i, j) and stride_rule(i, j),
        window & narrow: lambda i, j: window_rule(i, j) and narrow_rule(i, j),
        (window | narrow) & stride: lambda i, j: (window_rule(i, j) or narrow_rule(i, j)) and stride_rule(i, j),
    }
    for mask, rule in both.items():
        visible = mask.blocks(*sizes)
        assert (visible >= seen_blocks(rule, *sizes)).all()
        assert (visible <= window.blocks(*sizes) | narrow.blocks(*sizes)).all()
        np.testing.assert_array_equal((mask & padded).blocks(*sizes), visible)
    assert (window | padded).blocks(*sizes).all()


def test_blocks_of_a_narrow_window_are_few():
    """Of 64 x 64 blocks, each sees itself and its neighbours."""
    visible = tfm.window(128, 128).blocks(128, 128, 8192, 8192)
    assert visible.sum() == 3 * 64 - 2
    strided = (tfm.causal() & (tfm.window(128, 0) | tfm.strided(512))).blocks(64, 64, 4096, 4096)
    assert strided.sum() < 0.3 * 64 * 64


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(10, plain=3))
def test_live_blocks_follow_the_texts_of_a_row(seed):
    """No block is forgotten where texts begin anywhere; and where they begin at borders of blocks, none is in vain."""
    rng = np.random.default_rng(seed)
    place, rule = random_place(rng)
    lengths = rng.permutation([8, 8, 16])
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)[None] - (seed % 2) * int(rng.integers(0, 4))
    mask = Restarted(place, jnp.asarray(starts)) & tfm.segments(jnp.asarray(starts))
    place_rule = lambda i, j: starts[0, i] == starts[0, j] and rule(i - starts[0, i], j - starts[0, j])
    visible = np.asarray(mask.live_blocks(4, 8, 32, 32))
    seen = seen_blocks(place_rule, 4, 8, 32, 32)
    assert (visible >= seen).all()
    if seed % 2 == 0:
        np.testing.assert_array_equal(visible, seen)
    np.testing.assert_array_equal(mask.dense(32)[0], [[place_rule(i, j) for j in range(32)] for i in range(32)])


def test_reach():
    """The ends of the smallest window around a mask, None where it has no end."""
    reaches = [
        (tfm.window(3, None), (3, None)),
        (tfm.causal() & tfm.local_blocks(4, 1), (7, 0)),
        (tfm.window(3, 0) | tfm.window(1, 5), (3, 5)),
        (tfm.window(3, 0) | tfm.global_tokens(1), (None, None)),
        (tfm.strided(3), (None, None)),
    ]
    assert [mask.reach for mask, _ in reaches] == [reach for _, reach in reaches]


def test_a_stride_is_positive():
    with pytest.raises(ValueError, match="stride=0 must be at least 1"):
        tfm.strided(0)
    with pytest.raises(ValueError, match="size=0 must be at least 1"):
        tfm.local_blocks(0)
    with pytest.raises(ValueError, match="count=5 must be at least 1 and at most block=4"):
        tfm.summaries(4, 5)


def test_a_mask_of_your_own():
    """A subclass with one method joins in."""

    class Even(tfm.Mask):
        def __call__(self, i, j):
            return (j % 2 == 0)[:, None, :]

    np.testing.assert_array_equal(
        dense(Even() & MASKS["causal"][0]),
        table(lambda b, i, j: j % 2 == 0 and j <= i),
    )
