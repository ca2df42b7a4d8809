"""ROUGE, exact match and F1 of what was written, against plain definitions, and their intervals."""

import numpy as np
import pytest

from train.metrics import written

WORDS = "the cat sat on a mat".split()


def draw(seed, count=200):
    """Pairs of texts of up to nine words out of six."""
    rng = np.random.default_rng(seed)
    return [tuple(" ".join(rng.choice(WORDS, size)) for size in rng.integers(10, size=2)) for _ in range(count)]


def harmonic(shared, written_count, expected_count):
    """F1 by its definition, from precision and recall."""
    if not shared:
        return 0.0
    precision, recall = shared / written_count, shared / expected_count
    return 2 / (1 / precision + 1 / recall)


def table_of_lengths(words, reference):
    """The longest common subsequence by a table of all beginnings."""
    table = np.zeros((len(words) + 1, len(reference) + 1), int)
    for i, word in enumerate(words):
        for j, target in enumerate(reference):
            table[i + 1, j + 1] = table[i, j] + 1 if word == target else max(table[i, j + 1], table[i + 1, j])
    return int(table[-1, -1])


def shared(grams, expected):
    """How many are in both, each as often as in the rarer one."""
    return sum(min(grams.count(gram), expected.count(gram)) for gram in set(grams))


def test_rouge_of_random_texts():
    for text, reference in draw(0):
        words, expected = text.split(), reference.split()
        pairs, expected_pairs = ([side[i : i + 2] for i in range(len(side) - 1)] for side in (words, expected))
        pairs, expected_pairs = ([" ".join(pair) for pair in side] for side in (pairs, expected_pairs))
        assert written.rouge(text, reference) == pytest.approx(
            {
                "rouge1": harmonic(shared(words, expected), len(words), len(expected)),
                "rouge2": harmonic(shared(pairs, expected_pairs), len(pairs), len(expected_pairs)),
                "rougeL": harmonic(table_of_lengths(words, expected), len(words), len(expected)),
            }
        )


def test_words_are_those_of_any_script():
    same = {"rouge1": 1.0, "rouge2": 1.0, "rougeL": 1.0}
    assert written.rouge("The Cat, sat_on: 3.5", "the cat sat on 3 5") == same
    assert written.rouge("Über die Straße", "über DIE straße!") == same
    assert set(written.rouge("...", "!").values()) == {0.0}


def test_answers_count_as_those_of_squad():
    assert written.metrics("answers", ["The cat!", "a dog"], ["cat", "dog house"]) == pytest.approx(
        {"exact_match": 0.5, "f1": (1 + 2 / 3) / 2}
    )


def test_intervals_hold_their_mean_and_know_what_chance_makes():
    texts, references = zip(*draw(1), strict=True)
    values = written.metrics("rouge", texts, references)
    said = written.intervals("rouge", texts, references, references)
    for name, value in values.items():
        low, high = said[f"{name}_interval"]
        error = np.std([written.rouge(*pair)[name] for pair in zip(texts, references, strict=True)]) / np.sqrt(
            len(texts)
        )
        assert (low, high) == pytest.approx((value - 1.96 * error, value + 1.96 * error), abs=0.3 * error)
        assert said[f"{name}_against"] > 0.7
        assert said[f"{name}_p"] < 0.01
    assert written.intervals("rouge", texts, references, texts)["rouge1_p"] == 1.0
