"""Built-in questions: a reader of its own, by regular expressions, finds the same answers."""

import collections
import re

import pytest

from train.tasks.span import questions

N, X = r"[A-Z]\w+", r"(?P<x>[^.]+?)"

# What a question asks for, and the sentences that say it.
READER = {
    rf"Where was {N} born|What is the birthplace of {N}": [
        rf"{N} was born in {X}",
        rf"{X} is the town of birth of {N}",
    ],
    rf"Where does {N} live|In which town is the home of {N}": [rf"{N} lives in {X} today", rf"Today .* {N} is in {X}"],
    rf"Who is a friend of {N}|Whom does {N} trust most": [rf"{X} is the best friend of {N}", rf"The best .* is {X}"],
    rf"When did {N} marry|In which year was the wedding .*": [rf"{N} married in {X}", rf"The wedding .* in {X}"],
    rf"What was the job of {N}|How did {N} earn money": [rf"{N} worked as a {X}", rf"The work .* of a {X}"],
    rf"Which animal does {N} have|What pet .*": [rf"{N} keeps a {X}", rf"At home {N} has a {X}"],
    r"Which instrument .*|On what does .*": [rf"{N} plays the {X}", rf"In the evening {N} practises the {X}"],
    rf"What does {N} like to eat|Which dish .*": [rf"{N} likes to eat {X}", rf"The favourite food of {N} is {X}"],
    rf"In which month .*|What month .* {N}": [rf"The birthday of {N} is in {X}", rf"Every {X} {N} turns .*"],
    rf"Which language .*|What is the language of {N}": [rf"{N} speaks {X}", rf"At table {X} is the language of {N}"],
}


def read(context, question):
    """The values that the sentences have for the question."""
    (sentences,) = (texts for asked, texts in READER.items() if re.fullmatch(asked, question.rstrip("?")))
    matches = [re.fullmatch(text, said) for said in context.rstrip(".").split(". ") for text in sentences]
    return [match["x"] for match in matches if match]


@pytest.fixture(scope="module")
def rows():
    return questions.generate(train=400)


def test_every_question_has_the_answer_of_its_words(rows):
    for row in [*rows[0], *rows[1]]:
        answers = row["answers"]
        assert read(row["context"], row["question"]) == answers["text"], row
        for text, start in zip(answers["text"], answers["answer_start"], strict=True):
            assert row["context"][start : start + len(text)] == text


def test_counts(rows):
    """A quarter has no answer; ids and paragraphs differ; answers to an unread question are worth little."""
    train, valid = rows
    assert (len(train), len(valid)) == (1600, 1000)
    every = [*train, *valid]
    assert sum(not row["answers"]["text"] for row in every) == len(every) / 4
    assert len({row["id"] for row in every}) == len(every)
    assert len({row["context"] for row in every}) == len(every) / 4
    shown = [text for row in train for text in row["answers"]["text"]]
    assert collections.Counter(shown).most_common(1)[0][1] < 0.05 * len(shown)
    assert {len(text.split()) for text in shown} == {1, 2, 3, 4}


def test_the_same_on_every_machine_and_in_every_size(rows):
    again = questions.generate(train=100)
    assert again[1] == rows[1]
    assert again[0] == rows[0][:400]
    assert questions.generate(seed=1, train=10)[0] != again[0][:40]
