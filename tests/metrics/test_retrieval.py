"""Retrieval against loops, ties, groups, and bags of tokens."""

import numpy as np
import pytest

from train.metrics.retrieval import alignment, bags, both_retrievals, retrieval, uniformity


def units(rows, seed):
    x = np.random.default_rng(seed).normal(size=(rows, 4))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("size", [None, 10, 7])
def test_retrieval_is_that_of_loops(size):
    """Groups that are full; blocks of queries do not matter."""
    queries, candidates = units(30, 0), units(30, 1) + 2 * units(30, 0)
    ranks = []
    for first in range(0, 30 - (size or 30) + 1, size or 30):
        group = range(first, first + (size or 30))
        for row in group:
            cosines = {place: float(queries[row] @ candidates[place]) for place in group}
            ranks.append(sorted(cosines, key=cosines.get, reverse=True).index(row))
    expected = {"retrieval_1": np.mean([rank < 1 for rank in ranks]), "retrieval_5": np.mean([r < 5 for r in ranks])}
    assert 0 < expected["retrieval_1"] < 1
    assert retrieval(queries, candidates, size) == pytest.approx(expected)


def test_equal_groups_are_as_right():
    """Of a picture with two captions either is right, and both pictures of a caption are."""
    rng = np.random.default_rng(1)
    groups = rng.integers(0, 8, 20)
    queries, candidates = units(20, 0), units(20, 1) + units(20, 0)
    ranks = []
    for row in range(20):
        cosines = candidates @ queries[row]
        best = max(cosines[place] for place in range(20) if groups[place] == groups[row])
        ranks.append(sum(cosines[place] > best for place in range(20) if groups[place] != groups[row]))
    expected = {f"retrieval_{count}": np.mean([rank < count for rank in ranks]) for count in (1, 5)}
    assert expected["retrieval_1"] > retrieval(queries, candidates)["retrieval_1"]
    own = np.arange(20)
    for contents in ((groups, own + 100), (own + 100, groups)):
        assert retrieval(queries, candidates, None, np.stack(contents, axis=1)) == pytest.approx(expected)
    back = both_retrievals(candidates, queries, None, np.stack([own + 100, groups], axis=1))
    assert back["retrieval_1_back"] == pytest.approx(expected["retrieval_1"])


def test_a_candidate_that_is_the_query_is_right():
    """As in the pairs (a, b) and (b, a)."""
    x = units(2, 0)
    assert retrieval(x, x[::-1])["retrieval_1"] == 0
    assert retrieval(x, x[::-1], None, np.array([[0, 1], [1, 0]]))["retrieval_1"] == 1


def test_ties_count_in_part():
    """Of two equal texts each is a half; vectors that are all the same are worth a guess."""
    x = units(6, 0)[[0, 0, 1, 2, 3, 4]]
    assert retrieval(x, x) == pytest.approx({"retrieval_1": 5 / 6, "retrieval_5": 1})
    assert retrieval(x, np.zeros_like(x)) == pytest.approx({"retrieval_1": 1 / 6, "retrieval_5": 5 / 6})


def test_bags():
    rows = bags([np.array([3, 1, 3]), np.array([], np.int64), np.array([1])], 5)
    np.testing.assert_allclose(rows.toarray(), [[0, 0.2**0.5, 0, 0.8**0.5, 0], [0] * 5, [0, 1, 0, 0, 0]])
    assert retrieval(rows[[0, 2]], rows[[0, 2]]) == {"retrieval_1": 1.0, "retrieval_5": 1.0}


def test_alignment_and_uniformity():
    x = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    assert alignment(x, x[[0, 1, 1]]) == pytest.approx(2 / 3)
    assert uniformity(x) == pytest.approx(np.log((2 * np.exp(-4) + np.exp(-8)) / 3))
    assert uniformity(x[:1]) == 0
