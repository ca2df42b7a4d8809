"""Questions on deals: what is relevant, and what training never combines."""

import random

import pytest

from train.data.synthetic import deals


def meanings(text, fields):
    """The meanings whose words a text has, by field."""
    padded = f" {text.replace('?', ' ').replace('.', ' ').replace(',', ' ')} "
    return {
        field: {name for name, words in deals.WORDS[field].items() if any(f" {word} " in padded for word in words)}
        for field in fields
    }


@pytest.mark.slow
def test_relevant_passages_have_all_meanings_of_the_question():
    collection = deals.read().collection
    for query, judged in collection.qrels.items():
        asked = meanings(collection.queries[query], ("colour", "goods", "place"))
        for passage in judged:
            stated = meanings(collection.corpus[passage], asked)
            assert all(names <= stated[field] for field, names in asked.items()), collection.queries[query]
    assert sum(collection.withheld.values()) == deals.QUESTIONS == len(collection.queries) / 2
    assert all(collection.qrels.values())


@pytest.mark.slow
def test_training_lacks_withheld_combinations_and_the_passages_of_the_collection():
    data = deals.read()
    pairs = {tuple(pair.split()) for pair in deals.WITHHELD["colour", "goods"].split(", ")}
    combined = set()
    for row in data.train:
        for text in row.values():
            stated = meanings(text, ("colour", "goods"))
            combined |= {(colour, goods) for colour in stated["colour"] for goods in stated["goods"]}
    assert not combined & pairs
    assert len(combined) == 8 * 16 - len(pairs), "all others occur"
    assert not {row["passage"] for row in data.train} & {*data.collection.corpus.values()}
    assert [row["withheld"] for row in data.valid] == [False] * deals.QUESTIONS + [True] * deals.QUESTIONS


def test_who_gives_and_who_takes_is_said_by_order():
    facts = {"giver": "doctor", "taker": "baker", "deal": "sell", "colour": "red", "goods": "car", "place": "park"}
    rng = random.Random(0)
    for _ in range(50):
        words = deals.passage(facts, rng).replace(",", "").replace(".", "").split()
        places = [
            next(index for index, word in enumerate(words) if word in deals.WORDS["giver"][name])
            for name in ("doctor", "baker")
        ]
        is_backward = any(word in words for word in ("bought", "purchased", "acquired"))
        assert (places[0] > places[1]) == is_backward
