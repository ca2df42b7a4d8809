"""News in plain English, written by a grammar: sentences whose persons, places, organizations and dates are tagged.

The data are synthetic: the tables here and in `names` are all of them. What surrounds a name says what it is: names
are shared by types, and one name in four of the validation sentences, with the words that it is made of, is never in
the training sentences. The most frequent tag of each word gets an F1 of 0.36.
"""

import random
import re
from typing import Any

from train.tasks.tag.names import SLOTS

# Words in other slots. Nationalities are capitalized and no entities, and numbers look like years.
_WORDS = {
    "job": "painter, surgeon, minister, teacher, violinist, chemist, judge, farmer, sailor, reporter",
    "title": "Mrs, Mr, Professor, Doctor, Captain, Judge, Minister, Lady",
    "nation": "Dutch, Norwegian, Italian, Polish, Spanish, Swiss, Danish, French",
    "count": "12, 45, 300, 1940, 1985, 2010, 750, 28, 1966, 90",
    "thing": "bridge, hospital, museum, theatre, factory, library, school, harbour",
    "goods": "engines, boats, clocks, medicines, cameras, tractors, pianos, cables",
    "adj": "old, small, large, famous, northern, empty, crowded, quiet",
    "rel": "sister, brother, father, neighbour, wife, husband, aunt, teacher",
    "said": "said, explained, wrote, admitted, insisted",
    "moved": "moved, travelled, returned, walked, sailed",
}

# A statement stands alone, or after an opening.
_STATEMENTS = """
{per} was born in {loc}
{per} was born in {loc} on {day}
{per} , a {job} from {loc} , died on {day}
{per} and {per} were married in {loc}
{per} {moved} from {loc} to {loc} in {year}
{per} {said} that the {thing} was too {adj}
{title} {per} {said} nothing about {per}
{title} {per} was elected mayor of {loc}
the {job} {per} painted {loc} twice
a portrait of {per} hangs in the {thing}
the {rel} of {per} works for {org}
her {rel} {per} lives near {loc}
{per} resigned as head of {org} on {day}
{per} joined {org} as an engineer in {year}
{org} hired {per} in {year}
{org} announced a loss of {count} million on {day}
{org} employs {count} people in {loc}
{org} makes {goods} and {goods}
{org} bought {org} for {count} million
shares of {org} fell on {day}
{org} will build a {thing} in {loc}
the firm {org} was founded by {per} in {year}
the chairman of {org} met {per}
workers at {org} went on strike in {year}
{org} beat {org} by two goals to one
the {nation} firm {org} sold {count} {goods}
{loc} lies on the {nation} coast
{loc} has a {adj} {thing} and {count} inhabitants
the {thing} in {loc} was built in {year}
the streets of {loc} were {adj} on {day}
the road from {loc} to {loc} is closed until {year}
the mayor of {loc} opened a {adj} {thing}
the {nation} army reached {loc} in {year}
snow fell on {loc} and {loc}
the ferry {ship} left {loc} with {count} passengers
the {adj} ship {ship} sank in {year}
the steamer {ship} carried {goods} for {org}
{per} was the captain of the ferry {ship}
the {thing} was {adj} since {year}
they sold {count} {goods} in {year}
the {thing} needs {count} {nation} {goods}
nobody in {loc} remembers {per}
the letter to {per} was written on {day}
a {nation} {job} found {count} {goods} near {loc}
{per} bought shares of {org}
{per} sued {org} over the {goods}
visitors from {loc} filled the {adj} {thing}
the {job} told {per} about {loc}
""".strip().split("\n")

_OPENINGS = """
in {year} ,
on {day} ,
according to {per} ,
in {loc} ,
the paper reports that
{per} {said} that
{org} confirmed that
a {job} {said} that
""".strip().split("\n")


def generate(seed: int = 0, train: int = 6000, valid: int = 1000) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Training and validation rows {"tokens", "tags", "where"}, all different, and the same on every machine.

    Tags are IOB2. The validation rows do not depend on `train`, and fewer training rows are the first of more. Raises
    ValueError if there are not that many different sentences.
    """
    rng, sentences = random.Random(seed), set[tuple[str, ...]]()
    rows = [_row(rng, 0.25 if n < valid else 0.0, sentences) for n in range(valid + train)]
    return rows[valid:], rows[:valid]


def _row(rng: random.Random, unseen: float, sentences: set[tuple[str, ...]]) -> dict[str, Any]:
    """A row that is not among `sentences`, to which it is added; `unseen` is the share of names kept for validation."""
    for _ in range(1000):
        statement = rng.choice(_STATEMENTS)
        opening = rng.choice(_OPENINGS) + " " if rng.random() < 0.3 else ""
        words, tags = _fill(rng, f"{opening}{statement} .", unseen)
        if tuple(words) not in sentences:
            sentences.add(tuple(words))
            return {"tokens": words, "tags": tags, "where": "builtin"}
    raise ValueError(f"no new sentence after {len(sentences)}; ask for fewer")


def _fill(rng: random.Random, template: str, unseen: float) -> tuple[list[str], list[str]]:
    """The words of a template with its slots filled, and their tags."""
    words: list[str] = []
    tags: list[str] = []
    for part in template.split():
        slot = re.fullmatch(r"{(\w+)}", part)
        kind, name = _content(rng, slot[1], unseen) if slot else ("", part)
        parts = name.split()
        words += parts
        tags += [f"{'I' if n else 'B'}-{kind}" if kind else "O" for n in range(len(parts))]
    words[0] = words[0][0].upper() + words[0][1:]
    return words, tags


def _content(rng: random.Random, slot: str, unseen: float) -> tuple[str, str]:
    """The type of what fills a slot, empty for words that are no entity, and the words."""
    if slot in SLOTS:
        kind, write = SLOTS[slot]
        return kind, write(rng, rng.random() < unseen)
    return "", rng.choice(_WORDS[slot].split(", "))
