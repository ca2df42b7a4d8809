"""Built-in questions: a reader of its own, by regular expressions, finds the same answers."""

import collections
import re

import pytest

from train.data.synthetic import questions

NAME = r"(?P<person>[A-Z][a-z]+(?: [A-Z][a-z]+)*)"
PLACE, TIME = r"(?P<place>(?:in|at|on|near|under) .+?)", r"(?P<time>(?:in|at|on) [^.]+?)"
PASTS = {"find": "found", "sell": "sold", "lose": "lost", "repair": "repaired", "hide": "hid", "paint": "painted"}
SENTENCE = re.compile(rf"{NAME} (?P<past>\w+) the (?P<adjective>\w+) (?P<noun>\w+) {PLACE} {TIME}\.")

ASKED = [
    ("person", r"Who (?P<past>\w+) the (?P<noun>\w+)"),
    ("person", r"By whom was the (?P<noun>\w+) (?P<past>\w+)"),
    ("object", rf"What did {NAME} (?P<base>\w+)"),
    ("object", rf"What was it that {NAME} (?P<past>\w+)"),
    ("object", rf"Which (?P<noun>\w+) did {NAME} (?P<base>\w+)"),
    ("object", r"Which (?P<noun>\w+) was (?P<past>\w+)"),
    ("place", rf"Where did {NAME} (?P<base>\w+) the (?P<noun>\w+)"),
    ("place", r"Where was the (?P<noun>\w+) (?P<past>\w+)"),
    ("time", rf"When did {NAME} (?P<base>\w+) the (?P<noun>\w+)"),
    ("time", r"When was the (?P<noun>\w+) (?P<past>\w+)"),
]


def facts_of(context):
    """What the sentences say; places and times without their prepositions."""
    facts = [match.groupdict() for match in SENTENCE.finditer(context)]
    assert len(facts) == context.count(".")
    for fact in facts:
        fact["object"] = f"the {fact['adjective']} {fact['noun']}"
        fact |= {name: fact[name].partition(" ")[2] for name in ("place", "time")}
    return facts


def read(context, question):
    """The answers of all facts that fit the words of the question, without what it offers."""
    asked = question.rstrip("?").partition(",")[0]
    for kind, pattern in ASKED:
        if match := re.fullmatch(pattern, asked):
            words = match.groupdict()
            if "base" in words:
                words["past"] = PASTS[words.pop("base")]
            words["past"] = {"hidden": "hid"}.get(words["past"], words["past"])
            return [fact[kind] for fact in facts_of(context) if words.items() <= fact.items()]
    raise AssertionError(f"no pattern for {question}")


@pytest.fixture(scope="module")
def rows():
    return questions.generate(train=400)


def test_every_question_has_the_answer_of_its_words(rows):
    for row in [*rows[0], *rows[1]]:
        answers = row["answers"]
        assert read(row["context"], row["question"]) == answers["text"], row
        for text, start in zip(answers["text"], answers["answer_start"], strict=True):
            assert row["context"][start : start + len(text)] == text


def test_what_a_question_offers_has_its_answer(rows):
    offering = [row for row in rows[0] if "," in row["question"] and row["answers"]["text"]]
    assert len(offering) > 0.2 * len(rows[0])
    for row in offering:
        offers = row["question"].rstrip("?").partition(", ")[2].split(" or ")
        assert len([offer for offer in offers if offer.endswith(row["answers"]["text"][0])]) == 1


def test_counts(rows):
    """A quarter has no answer; ids and paragraphs differ; answers to an unread question are worth little."""
    train, valid = rows
    assert (len(train), len(valid)) == (1600, 800)
    every = [*train, *valid]
    assert sum(not row["answers"]["text"] for row in every) == len(every) / 4
    assert len({row["id"] for row in every}) == len(every)
    assert len({row["context"] for row in every}) == len(every) / 4
    shown = [text for row in train for text in row["answers"]["text"]]
    assert collections.Counter(shown).most_common(1)[0][1] < 0.05 * len(shown)


def test_the_same_on_every_machine_and_in_every_size(rows):
    again = questions.generate(train=100)
    assert again[1] == rows[1]
    assert again[0] == rows[0][:400]
    assert questions.generate(seed=1, train=10)[0] != again[0][:40]
