"""Entities of tags: conlleval's rules, schemes, and scores."""

import itertools

import numpy as np
import pytest

from train.tasks.tag import metric
from train.tasks.tag.metric import Entity


def chunks(tags):
    """Entities by the two questions that conlleval asks between neighbours: does a chunk end, does a chunk start?"""
    ends = {"BB", "BS", "BO", "IB", "IS", "IO"} | {a + b for a in "ES" for b in "BIESO"}
    starts = {a + b for a in "BIESO" for b in "BS"} | {"EE", "EI", "SE", "SI", "OE", "OI"}
    spans, open_at = set(), None
    pairs = [(tag[0], tag[2:]) for tag in ["O", *tags, "O"]]
    for n, ((before, kind_before), (now, kind)) in enumerate(itertools.pairwise(pairs)):
        changes = kind != kind_before
        if before != "O" and (before + now in ends or changes):
            spans.add((kind_before, open_at, n))
        if now != "O" and (before + now in starts or changes):
            open_at = n
    return spans


@pytest.mark.parametrize("places", ["IO", "BIO", "BIESO"])
def test_entities_of_random_tags(places):
    """Tags in any order, right or wrong."""
    rng = np.random.default_rng(0)
    labels = [place if place == "O" else f"{place}-{kind}" for place in places for kind in ("PER", "LOC")]
    for _ in range(400):
        tags = rng.choice(labels, rng.integers(1, 9)).tolist()
        assert {tuple(entity) for entity in metric.entities(tags)} == chunks(tags), tags


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O I-PER O", [("PER", 1, 2)]),
        ("B-PER I-LOC", [("PER", 0, 1), ("LOC", 1, 2)]),
        ("B-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),
        ("I-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("B-A L-A U-A U-A I-A", [("A", 0, 2), ("A", 2, 3), ("A", 3, 4), ("A", 4, 5)]),
        ("B I O B", [("_", 0, 2), ("_", 3, 4)]),
        ("", []),
    ],
)
def test_entities(tags, spans):
    assert metric.entities(tags.split()) == [Entity(*span) for span in spans]


@pytest.mark.parametrize(
    ("sentences", "scheme"),
    [
        (["I-PER I-PER O", "I-LOC B-LOC O"], "IOB1"),
        (["I-PER O"], "IOB1"),
        (["B-PER I-PER O", "B-LOC B-LOC"], "IOB2"),
        (["B-PER I-PER", "O I-PER"], "IOB2"),
        (["B-PER E-PER", "S-LOC O"], "BIOES"),
        (["B-PER L-PER", "U-LOC O"], "BILOU"),
        (["B I O"], "IOB2"),
        (["DT NN VB", "O NN"], "labels"),
        (["B-PER PER"], "labels"),
        (["O O"], "labels"),
    ],
)
def test_scheme(sentences, scheme):
    assert metric.scheme([tags.split() for tags in sentences]) == scheme


def test_starts_with_inside_tags_are_counted():
    assert metric.inside_starts([["O", "I-A", "I-A", "I-B"], ["B-A", "I-A"], ["I-A"]]) == 3


def test_scores_of_an_example():
    """Counted by hand: two of three predicted entities are right, and two of four that are there."""
    predicted = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-ORG", "O"]]
    labelled = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "B-ORG", "I-ORG"]]
    spans = ([metric.entities(tags) for tags in sentences] for sentences in (predicted, labelled))
    total, by_type = metric.entity_scores(*spans)
    assert total == pytest.approx({"precision": 2 / 3, "recall": 2 / 4, "f1": 4 / 7})
    assert by_type["LOC"] == pytest.approx({"precision": 1, "recall": 0.5, "f1": 2 / 3, "support": 2})
    assert by_type["ORG"] == {"precision": 0, "recall": 0, "f1": 0, "support": 1}
    assert list(by_type) == ["LOC", "ORG", "PER"]


def test_scores_of_random_tags():
    """A thousand sentences with noisy predictions: the counts are those of conlleval's loop."""
    rng = np.random.default_rng(1)
    labels = ["O", "B-A", "I-A", "B-B", "I-B"]
    truths = [rng.choice(labels, rng.integers(1, 12), p=[0.4, 0.15, 0.15, 0.15, 0.15]).tolist() for _ in range(1000)]
    guesses = [[tag if rng.random() < 0.8 else str(rng.choice(labels)) for tag in tags] for tags in truths]
    right = guessed = labelled_count = 0
    for predicted, labelled in zip(guesses, truths, strict=True):
        right += len(chunks(predicted) & chunks(labelled))
        guessed += len(chunks(predicted))
        labelled_count += len(chunks(labelled))
    spans = ([metric.entities(tags) for tags in sentences] for sentences in (guesses, truths))
    total = metric.entity_scores(*spans)[0]
    precision, recall = right / guessed, right / labelled_count
    assert total == pytest.approx(
        {"precision": precision, "recall": recall, "f1": 2 * precision * recall / (precision + recall)}
    )


def test_no_entities_at_all():
    assert metric.entity_scores([[], []], [[], []]) == ({"precision": 0, "recall": 0, "f1": 0}, {})
