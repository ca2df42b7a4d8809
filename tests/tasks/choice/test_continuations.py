"""Built-in multiple choice: well-formed, balanced, split, and out of reach of common words and lengths."""

import re
from collections import Counter

import pytest

from train.tasks.choice import continuations
from train.tasks.choice.continuations import NEEDS, PEOPLE

TRAIN, VALID = continuations.generate(train=2000)
ROWS = TRAIN + VALID
STATES = {state: (n, place) for n, need in enumerate(NEEDS) for place, state in enumerate(need.states)}
THINGS = {aid: (n, place) for n, need in enumerate(NEEDS) for place, aid in enumerate(need.things)}


def mentioned(phrases, text):
    """The phrases in a text, in their order."""
    spans = [(match.start(), phrase) for phrase in phrases for match in re.finditer(rf"\b{phrase}\b", text)]
    return [phrases[phrase] for _, phrase in sorted(spans)]


def state_of(row):
    """What the person of the continuations is, read without the grammar."""
    text = row["context"][0].lower() + row["context"][1:]
    person = next(person for person, _ in PEOPLE if row["choices"][0].lower().startswith(f"{person} "))
    states = mentioned(STATES, text)
    if len(states) == 1:
        return states[0]
    if " and " in text:
        return states[0] if person in text.partition(" and ")[0] else states[1]
    return states[1]  # what is denied, or was before, comes first


def test_tables():
    assert all(len(need.states) == len(need.things) == 4 for need in NEEDS)
    assert len(STATES) == len(THINGS) == 4 * len(NEEDS), "no word is of two needs"


def test_rows():
    assert (len(TRAIN), len(VALID)) == (2000, 1000)
    assert len({row["context"] for row in ROWS}) == len(ROWS), "different within and between the two sides"
    for rows in (TRAIN, VALID):
        assert Counter(row["label"] for row in rows) == dict.fromkeys(range(4), len(rows) // 4)
    assert sum(row["group"] == "unseen" for row in VALID) == 248
    for row in ROWS:
        assert re.fullmatch(r"[A-Z][A-Za-z ,;]+\.", row["context"]), row
        assert len({*row["choices"]}) == 4
        assert all(re.fullmatch(r"[A-Z][a-z ]+\.", choice) for choice in row["choices"])
    assert 0.2 < sum(len(mentioned(STATES, row["context"])) == 2 for row in ROWS) / len(ROWS) < 0.35


@pytest.mark.slow
def test_the_label_is_what_helps():
    for row in ROWS:
        needs = [mentioned(THINGS, choice)[0][0] for choice in row["choices"]]
        assert needs[row["label"]] == state_of(row)[0], row
        assert len({*needs}) == 4
        assert {need for need, _ in mentioned(STATES, row["context"])} <= {*needs}, "what is denied is offered too"


@pytest.mark.slow
def test_withheld_pairs_are_only_in_the_unseen_group():
    for row in ROWS:
        (aid,) = mentioned(THINGS, row["choices"][row["label"]])
        assert continuations.is_withheld(state_of(row)[1], aid[1]) == (row["group"] == "unseen")
    assert {row["group"] for row in TRAIN} == {"seen"}


@pytest.mark.slow
def test_common_words_and_lengths_do_not_decide():
    def accuracy(score):
        total = 0.0
        for row in VALID:
            scores = [score(row["context"], choice) for choice in row["choices"]]
            best = [place for place, value in enumerate(scores) if value == max(scores)]
            total += (row["label"] in best) / len(best)
        return total / len(VALID)

    def words(text):
        return {*re.findall(r"\w+", text.lower())}

    assert accuracy(lambda context, choice: len(words(context) & words(choice))) < 0.3
    assert accuracy(lambda context, choice: len(choice)) < 0.3
    assert accuracy(lambda context, choice: -len(choice)) < 0.3

    def needs(text, phrases):
        return {need for need, _ in mentioned(phrases, text)}

    associated = accuracy(lambda context, choice: len(needs(context, STATES) & needs(choice, THINGS)))
    assert 0.8 < associated < 0.9, "to know what helps against what is not enough"


def test_seed_and_sizes(monkeypatch):
    assert continuations.generate(0, 60) == (TRAIN[:60], VALID)
    assert continuations.generate(1, 0, 20)[1] != VALID[:20]
    monkeypatch.setattr(continuations, "_TWO", ("{person} was {state}.",))
    monkeypatch.setattr(continuations, "_ONE", ("{person} was {state}.",))
    with pytest.raises(ValueError, match="no new context after 448; ask for fewer"):
        continuations.generate(0, 500, 0)
