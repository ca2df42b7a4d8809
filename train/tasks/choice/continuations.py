"""Multiple choice in plain English, written by a grammar: how somebody is, and four continuations of which one fits.

The data are synthetic: the tables below are all of them. Every need has words for the person and things that help, and
a row asks for a thing that helps. The continuations of a row say the same of the same person, but for the thing, so
that neither common words nor lengths decide. In a quarter of the rows two needs are named, of which one is denied, is
over, or is somebody else's: what helps against that one is offered too.

Some pairs of a word and a thing never occur in the training rows: those that `is_withheld` says. Every fourth
validation row has such a pair, and shows whether the model knows which need it reads of.
"""

import random
from typing import NamedTuple

CHOICES = 4

# Words for a person | things that help.
_NEEDS = """
hungry, starving, famished, ravenous | a sandwich, a pizza, a bowl of soup, a pancake
thirsty, parched, dehydrated, dry in the mouth | a glass of water, a lemonade, a bottle of juice, an iced tea
cold, freezing, chilled, stiff with frost | a blanket, a scarf, a sweater, a heater
tired, sleepy, exhausted, weary | a pillow, a bed, a couch, a hammock
ill, sick, feverish, unwell | a doctor, a pharmacy, a thermometer, a nurse
bored, idle, restless, fed up with waiting | a novel, a film, a puzzle, a game of chess
lost, disoriented, off course, far from any road | a map, a compass, a signpost, a guide
dirty, muddy, filthy, covered in dust | a sponge, a bar of soap, a shower, a bathtub
"""

_PEOPLE = """my sister/she, my brother/he, my aunt/she, my uncle/he, our neighbour/he, the teacher/she, my cousin/he,
my colleague/she, the student/he, my grandmother/she, the carpenter/he, the journalist/she, my friend/he, the baker/he
"""
_SLOTS = {
    "day": "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday",
    "trip": "walk, concert, meeting, party, race, lesson, flight, exam, market, storm",
    "verb": "looked for, asked for, wanted, went to find, longed for",
}

# Contexts of one need and of two. {person} is {state}, and not {wrong}.
_ONE = (
    "{person} was {state}.",
    "On {day} {person} was {state}.",
    "After the {trip} {person} was {state}.",
    "On {day}, after the {trip}, {person} was {state}.",
)
_TWO = (
    "On {day} {person} was not {wrong} but {state}.",
    "After the {trip} {person} was no longer {wrong}, but {state}.",
    "I thought that {person} was {wrong} on {day}, but {she} was {state}.",
    "{person} had been {wrong} before the {trip}; then {she} was {state}.",
    "After the {trip} {person} was {state}, and {witness} was {wrong}.",
    "On {day} {witness} was {wrong}, and {person} was {state}.",
)
_ENDING = "{person} {verb} {aid}."


class _Need(NamedTuple):
    """Words for a person who has it, and things that help."""

    states: list[str]
    things: list[str]


NEEDS = [_Need(*(side.split(", ") for side in line.split(" | "))) for line in _NEEDS.strip().split("\n")]
PEOPLE = [person.split("/") for person in _PEOPLE.replace("\n", " ").strip().split(", ")]


def is_withheld(state: int, aid: int) -> bool:
    """Whether this word and this thing of a need, by their places, stay out of the training rows."""
    return (state + aid) % 4 == 0


def generate(seed: int = 0, train: int = 20_000, valid: int = 1000) -> tuple[list[dict], list[dict]]:
    """Training and validation rows {"context", "choices", "label", "group"}, all different and the same everywhere.

    The label is the place of the continuation that fits; places take turns. The group is "unseen" for every fourth
    validation row, and else "seen". The validation rows do not depend on `train`, and fewer training rows are the
    first of more. Raises ValueError if there are not that many different rows.
    """
    rng, contexts = random.Random(seed), set[str]()
    kinds = [(n % CHOICES, n // CHOICES % 4 == 3) for n in range(valid)] + [(n % CHOICES, False) for n in range(train)]
    rows = []
    for label, unseen in kinds:
        row = _row(rng, label, unseen, contexts)
        contexts.add(row["context"])
        rows.append(row)
    return rows[valid:], rows[:valid]


def _row(rng: random.Random, label: int, unseen: bool, contexts: set[str]) -> dict:
    """A row whose context is not among `contexts`."""
    for _ in range(1000):
        state, aid = rng.randrange(4), rng.randrange(4)
        if is_withheld(state, aid) != unseen:
            continue
        needs = rng.sample(NEEDS, CHOICES)
        (person, she), (witness, _) = rng.sample(PEOPLE, 2)
        slots = {name: rng.choice(words.split(", ")) for name, words in _SLOTS.items()}
        slots |= {"person": person, "she": she, "witness": witness}
        slots |= {"state": needs[0].states[state], "wrong": rng.choice(needs[1].states)}
        context = _sentence(rng.choice(_TWO if rng.random() < 0.25 else _ONE), slots)
        if context not in contexts:
            wrong = [rng.choice(need.things) for need in needs[1:]]
            rng.shuffle(wrong)
            things = [*wrong[:label], needs[0].things[aid], *wrong[label:]]
            choices = [_sentence(_ENDING, slots | {"aid": name}) for name in things]
            return {"context": context, "choices": choices, "label": label, "group": "unseen" if unseen else "seen"}
    raise ValueError(f"no new context after {len(contexts)}; ask for fewer")


def _sentence(template: str, slots: dict[str, str]) -> str:
    """The template with its slots filled, and a capital at its beginning."""
    text = template.format(**slots)
    return text[0].upper() + text[1:]
