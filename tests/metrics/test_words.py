"""The word error rate against a recursion over all edits."""

import functools

import numpy as np

from train.metrics.words import distance, word_errors


@functools.cache
def edits(words, reference):
    """The least number of edits: of the last words, one of three."""
    if not words or not reference:
        return len(words) + len(reference)
    same = edits(words[:-1], reference[:-1]) + (words[-1] != reference[-1])
    return min(same, edits(words[:-1], reference) + 1, edits(words, reference[:-1]) + 1)


def test_the_distance_is_the_fewest_edits():
    rng = np.random.default_rng(0)
    for _ in range(200):
        words, reference = (tuple(rng.choice([*"abc"], rng.integers(0, 7)).tolist()) for _ in range(2))
        assert distance(words, reference) == edits(words, reference)


def test_errors_are_counted_over_all_words():
    metrics = word_errors(["one two", "", "five five"], ["one three two", "four", "five five"])
    assert metrics == {"wer": 2 / 6, "exact": 1 / 3}
