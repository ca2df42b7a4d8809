"""Short paragraphs about people, and questions about them, written by a grammar.

The data are synthetic: the tables below are all of them. A paragraph says some things of a person, and a question asks
for one of them in other words. A town answers two kinds of questions, so that only the sentence around it tells which.
A question that asks for what the paragraph leaves out has no answer.
"""

import random
from typing import Any, NamedTuple

_TOWNS = "Lisbon, Oslo, Turin, Ghent, Krakow, Porto, Malmo, Bristol, New Haven, Port Louis, San Remo, Fort William"
_PEOPLE = "Peter, Clara, Marco, Nina, Oscar, Ada Lind, Boris Hale, Cora Wells, Hugo Stein, Doctor Amin, Old Mister Fox"
_YEARS = "1931, 1948, 1956, 1962, 1975, 1984, 1990, 1999, 2003, 2011"


class _Relation(NamedTuple):
    """What is said of a person: sentences and questions, joined by |, and values, joined by commas. {x} is a value."""

    sentences: str
    questions: str
    values: str


_RELATIONS = (
    _Relation(
        "{name} was born in {x}.|{x} is the town of birth of {name}.",
        "Where was {name} born?|What is the birthplace of {name}?",
        _TOWNS,
    ),
    _Relation(
        "{name} lives in {x} today.|Today the house of {name} is in {x}.",
        "Where does {name} live?|In which town is the home of {name}?",
        _TOWNS,
    ),
    _Relation(
        "{x} is the best friend of {name}.|The best friend of {name} is {x}.",
        "Who is a friend of {name}?|Whom does {name} trust most?",
        _PEOPLE,
    ),
    _Relation(
        "{name} married in {x}.|The wedding of {name} was in {x}.",
        "When did {name} marry?|In which year was the wedding of {name}?",
        _YEARS,
    ),
    _Relation(
        "{name} worked as a {x}.|The work of {name} was that of a {x}.",
        "What was the job of {name}?|How did {name} earn money?",
        "baker, nurse, painter, judge, pilot, train driver, night guard, music teacher, ship's cook, maker of clocks",
    ),
    _Relation(
        "{name} keeps a {x}.|At home {name} has a {x}.",
        "Which animal does {name} have?|What pet belongs to {name}?",
        "dog, parrot, tortoise, rabbit, grey cat, white goat, very old horse, black and white hen",
    ),
    _Relation(
        "{name} plays the {x}.|In the evening {name} practises the {x}.",
        "Which instrument does {name} play?|On what does {name} make music?",
        "violin, flute, harp, trumpet, grand piano, church organ, electric guitar",
    ),
    _Relation(
        "{name} likes to eat {x}.|The favourite food of {name} is {x}.",
        "What does {name} like to eat?|Which dish pleases {name}?",
        "soup, bread, rice, apple cake, fried fish, cold potatoes, peas with ham",
    ),
    _Relation(
        "The birthday of {name} is in {x}.|Every {x} {name} turns a year older.",
        "In which month is the birthday of {name}?|What month brings presents for {name}?",
        "January, February, April, June, July, August, October, December",
    ),
    _Relation(
        "{name} speaks {x}.|At table {x} is the language of {name}.",
        "Which language does {name} speak?|What is the language of {name}?",
        "Dutch, Greek, Polish, Welsh, Swiss German, Old Norse",
    ),
)
_NAMES = "Anna, Felix, Greta, Irene, Jonas, Klara, Leon, Maria, Paul, Simon, Victor, Wanda"


def generate(seed: int = 0, train: int = 4000, valid: int = 250) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Four questions a paragraph, to train on and for validation, as rows of SQuAD's .jsonl.

    Every fourth question has no answer. All paragraphs differ. The validation rows do not depend on `train`, and fewer
    training rows are the first of more.
    """
    rng, contexts = random.Random(seed), set[str]()
    parts: dict[str, list[dict[str, Any]]] = {"valid": [], "train": []}
    for part, count in (("valid", valid), ("train", train)):
        for index in range(count):
            context, questions = _paragraph(rng)
            while context in contexts:
                context, questions = _paragraph(rng)
            contexts.add(context)
            for place, (question, answers) in enumerate(questions, start=1):
                row = {"id": f"{part}-{index}-{place}", "context": context, "question": question, "answers": answers}
                parts[part].append(row)
    return parts["train"], parts["valid"]


def _paragraph(rng: random.Random) -> tuple[str, list[tuple[str, dict[str, list[Any]]]]]:
    """A paragraph of four sentences, three questions about them and one without an answer, in any order."""
    name = rng.choice(_NAMES.split(", "))
    *stated, absent = rng.sample(_RELATIONS, 5)
    sentences: list[str] = []
    starts: list[int] = []
    values: list[str] = []
    for relation in stated:
        value, sentence = rng.choice(relation.values.split(", ")), rng.choice(relation.sentences.split("|"))
        starts.append(sum(len(text) + 1 for text in sentences) + sentence.format(name=name, x="\0").index("\0"))
        sentences.append(sentence.format(name=name, x=value))
        values.append(value)
    questions: list[tuple[str, dict[str, list[Any]]]] = [
        (_question(rng, stated[n], name), {"text": [values[n]], "answer_start": [starts[n]]})
        for n in rng.sample(range(len(stated)), 3)
    ]
    questions.append((_question(rng, absent, name), {"text": [], "answer_start": []}))
    rng.shuffle(questions)
    return " ".join(sentences), questions


def _question(rng: random.Random, relation: _Relation, name: str) -> str:
    return rng.choice(relation.questions.split("|")).format(name=name)
