"""Short paragraphs about what people did, and questions about them, written by a grammar.

The data are synthetic: the tables below are all of them. A paragraph has a few facts: who did what to which object,
where and when. The people, objects, places and times of a paragraph differ, and facts share verbs, so that only the
words of the question say which fact it asks about. A question has no answer where the paragraph does not have its
fact: another person did it, or it was done to another object.
"""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

_PEOPLE = "Anna, Peter, Clara, Marco, Nina, Oscar, Ada Lind, Boris Hale, Doctor Amin, Old Mister Finch"
_NOUNS = "lamp, clock, violin, letter, basket, mirror, coat, map, kettle, umbrella"
_ADJECTIVES = "red, blue, green, old, heavy, broken, wooden, golden"
_PLACES = """
in the garden, in the kitchen, at the harbour, at the market, in the library, on the bridge, in the old mill,
near the town hall, in Norway, under the big oak tree
"""
_TIMES = """
on Monday, on Tuesday, on Friday, on Sunday, in March, in October, in 1912, in 2003, at midnight, in the early morning
"""
# Past and base form.
_VERBS = "found/find, sold/sell, lost/lose, repaired/repair, hid/hide, painted/paint"

# What a fact looks like; what else may stand in a paragraph.
_FACTS = ("{person} {past} the {object} {place} {time}.",)
_FILLERS = (
    "It had rained all day.",
    "Nobody was surprised.",
    "The newspaper wrote about it.",
    "The neighbours talked about it for weeks.",
    "It was a good year.",
)
_PARTICIPLES = {"hid": "hidden"}

# A question by what it asks for.
_QUESTIONS = {
    "person": ("Who {past} the {noun}?", "By whom was the {noun} {participle}?"),
    "object": ("What did {person} {base}?", "What was it that {person} {past}?"),
    "which": ("Which {noun} did {person} {base}?", "Which {noun} was {participle}?"),
    "place": ("Where did {person} {base} the {noun}?", "Where was the {noun} {participle}?"),
    "time": ("When did {person} {base} the {noun}?", "When was the {noun} {participle}?"),
}


class _Fact(NamedTuple):
    """Who did what, where and when."""

    person: str
    verb: str
    object: str
    place: str
    time: str

    def fill(self, template: str) -> str:
        """The template with the words of the fact."""
        past, base = self.verb.split("/")
        words = {
            **self._asdict(),
            "noun": self.object.split()[1],
            "past": past,
            "base": base,
            "participle": _PARTICIPLES.get(past, past),
            "Time": self.time[0].upper() + self.time[1:],
            "Place": self.place[0].upper() + self.place[1:],
        }
        return template.format(**words)

    def phrase(self, kind: str) -> str:
        """The same with its preposition."""
        return f"the {self.object}" if kind in ("object", "which") else getattr(self, kind)

    def answer(self, kind: str) -> str:
        """What answers a question of this kind: words that stand in every sentence about the fact."""
        words = self.phrase(kind)
        # A place or a time may stand at the beginning of a sentence: its preposition is left out.
        return words.partition(" ")[2] if kind in ("place", "time") else words


def generate(seed: int = 0, train: int = 4000, valid: int = 200) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Questions about so many paragraphs to train on and for validation, four about each, as rows of SQuAD's .jsonl.

    All paragraphs differ. Every fourth question has no answer. The validation rows do not depend on `train`, and fewer
    training rows are the first of more.
    """
    rng = random.Random(seed)
    paragraphs = [_paragraph(rng, f"{'valid' if n < valid else 'train'}-{n}") for n in range(valid + train)]
    rows = [[row for paragraph in part for row in paragraph] for part in (paragraphs[valid:], paragraphs[:valid])]
    return rows[0], rows[1]


def _paragraph(rng: random.Random, name: str) -> list[dict[str, Any]]:
    """Questions about a new paragraph."""
    facts, absent = _facts(rng)
    sentences = [fact.fill(rng.choice(_FACTS)) for fact in facts]
    context = " ".join(sentences)
    rows: list[tuple[str, dict[str, list[Any]]]] = []
    for kind in rng.sample(list(_QUESTIONS), 3):
        index = rng.randrange(len(facts))
        answer = facts[index].answer(kind)
        start = context.index(sentences[index]) + sentences[index].lower().index(answer.lower())
        text = context[start : start + len(answer)]
        question = _question(rng, facts[index], kind, [absent, absent, rng.choice(facts)])
        rows.append((question, {"text": [text], "answer_start": [start]}))
    rows.append((_question(rng, absent, rng.choice(list(_QUESTIONS)), facts), {"text": [], "answer_start": []}))
    rng.shuffle(rows)
    return [
        {"id": f"{name}-{index}", "context": context, "question": question, "answers": answers}
        for index, (question, answers) in enumerate(rows, start=1)
    ]


def _question(rng: random.Random, fact: _Fact, kind: str, rivals: Sequence[_Fact]) -> str:
    """A question about a fact; every second one offers its answer and that of a rival."""
    question = fact.fill(rng.choice(_QUESTIONS[kind]))
    offers = [fact.phrase(kind), rng.choice(rivals).phrase(kind)]
    if kind == "which" or offers[0] == offers[1] or rng.random() < 0.5:
        return question
    rng.shuffle(offers)
    return f"{question[:-1]}, {offers[0]} or {offers[1]}?"


def _facts(rng: random.Random) -> tuple[list[_Fact], _Fact]:
    """Two or three facts, of two verbs, and one that is not among them, though its verb is."""
    people, nouns, adjectives, places, times, verbs = (
        rng.sample(" ".join(table.split()).split(", "), count)
        for table, count in (
            (_PEOPLE, 4),
            (_NOUNS, 4),
            (_ADJECTIVES, 4),
            (_PLACES, 4),
            (_TIMES, 4),
            (_VERBS, 3),
        )
    )
    objects = [" ".join(pair) for pair in zip(adjectives, nouns, strict=True)]
    facts = [_Fact(people[n], verbs[n % 2], objects[n], places[n], times[n]) for n in range(rng.choice((2, 3)))]
    # Half of the questions without an answer ask about people and objects of the paragraph, with a verb of others.
    if rng.random() < 0.5:
        return facts, facts[0]._replace(verb=verbs[2])
    return facts, _Fact(people[3], verbs[0], objects[3], places[3], times[3])
