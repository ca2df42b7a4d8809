"""Questions and passages on deals, to learn and to measure retrieval on.

    which physician lent a crimson bike?
    yesterday, in the bazaar of the town, the doctor let the baker use a red bicycle.

A passage tells who sold, lent, sent or showed what to whom, and where; a question asks for some of that. All words of a
meaning are drawn anew, so common words say little; and who gives and who takes is said by their order. A passage is
relevant where it agrees with all that the question says. The combinations of WITHHELD, a colour with goods and a giver
with goods, never meet in training.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from train.data.synthetic.kept import kept

# Meanings and their words.
_PEOPLE = """
doctor physician medic, teacher instructor tutor, baker confectioner pastrycook, lawyer attorney solicitor,
farmer grower rancher, singer vocalist chorister, writer author novelist, sailor seaman mariner,
painter artist watercolourist, guard warden watchman, cook chef caterer, tailor seamstress dressmaker
"""
_GOODS = """
bicycle bike two-wheeler, car automobile motorcar, lamp lantern light, sofa couch settee, coat jacket overcoat,
house home cottage, boat vessel barge, ring band circlet, picture image print, bag sack pouch, phone telephone mobile,
hat cap bonnet, cup mug beaker, carpet rug mat, table desk bench, book volume tome
"""
_COLOURS = """
red crimson scarlet, blue azure cobalt, green emerald olive, yellow golden lemon, white ivory snowy,
black ebony inky, brown chestnut hazel, grey silver ashen
"""
_PLACES = """
market bazaar fair, harbour port dock, school academy college, park garden meadow, station terminal depot,
hotel inn hostel, church chapel cathedral, library archive bookroom
"""

# Of a deal: what the giver does, "to" the taker; the same before the taker; and what the taker does, "from" the giver.
_DEALS = {
    "sell": (("sold", "vended"), ("sold",), ("bought", "purchased", "acquired")),
    "lend": (("lent", "loaned"), ("lent", "loaned"), ("borrowed", "took on loan")),
    "send": (("sent", "mailed", "posted"), ("sent", "mailed"), ("got a parcel with", "got by mail")),
    "show": (("showed", "presented"), ("showed",), ("viewed", "inspected")),
}


def _words(text: str) -> dict[str, tuple[str, ...]]:
    rows = (row.split() for row in text.replace("\n", " ").split(","))
    return {words[0]: tuple(words) for words in rows}


WORDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "giver": _words(_PEOPLE),
    "taker": _words(_PEOPLE),
    "deal": {name: [word for words in forms for word in words] for name, forms in _DEALS.items()},
    "colour": _words(_COLOURS),
    "goods": _words(_GOODS),
    "place": _words(_PLACES),
}

# Pairs of meanings that training lacks, by the fields that they are of.
WITHHELD = {
    ("colour", "goods"): "red car, blue house, green sofa, yellow coat, white boat, black lamp, brown ring, grey bag",
    ("giver", "goods"): "doctor bicycle, baker car, farmer phone, writer hat, sailor carpet, cook table, guard picture",
}
_WITHHELD = {
    fields: frozenset((pair.split()[0], pair.split()[1]) for pair in text.split(", "))
    for fields, text in WITHHELD.items()
}

# What a question names.
_ASKED = (
    ("giver", "deal", "goods"),
    ("taker", "deal", "goods"),
    ("giver", "taker", "deal"),
    ("giver", "taker", "goods"),
    ("deal", "colour", "goods"),
    ("colour", "goods", "place"),
    ("giver", "deal", "colour", "goods"),
    ("taker", "deal", "colour", "goods"),
    ("giver", "taker", "deal", "goods"),
    ("giver", "deal", "colour", "goods", "place"),
)
_OPENINGS = ("", "", "yesterday, ", "last year, ", "before noon, ", "as the paper says, ", "on a cold day, ")
_ENDINGS = ("", "", " it rained all day.", " nobody else was there.", " the price was fair.", " they had met before.")

# A deal by the meanings of its fields; those of a question are some of them.
Facts = dict[str, str]

# The texts of an example, by the names of columns, and `withheld`.
Row = dict[str, str | bool]

# Rows of training; passages of the collection, of which a third has a withheld combination, and questions of each kind.
TRAIN, PASSAGES, QUESTIONS = 20_000, 1_500, 250


class Collection(NamedTuple):
    """Passages and queries by their ids, and judgments: of a query, the relevance of passages.

    withheld: whether a query has a combination that training lacks; none where nobody knows
    """

    corpus: dict[str, str]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]
    withheld: dict[str, bool]


class Deals(NamedTuple):
    """Rows of training, `query`, `passage` and `negative`, a passage that agrees but for a detail; rows of validation
    with `withheld` beside them; and a collection."""

    train: list[Row]
    valid: list[Row]
    collection: Collection


def read() -> Deals:
    """What `generate` writes, made once for all commands."""
    train, valid, collection = kept(generate)
    return Deals(train, valid, Collection(*collection))


def generate(seed: int = 0) -> Deals:
    """The texts of a seed, the same everywhere. Training has none of the deals of the collection."""
    rng = random.Random(seed)
    usual, withheld = (_deals(rng, has_withheld) for has_withheld in (False, True))
    deals = [next(usual) for _ in range(2 * PASSAGES // 3)]
    questions = [_question(facts, rng) for facts in rng.sample(deals, QUESTIONS)]
    special = [next(withheld) for _ in range(PASSAGES - len(deals))]
    questions += [_question(facts, rng, names_withheld=True) for facts in rng.sample(special, QUESTIONS)]
    deals += special
    rng.shuffle(deals)
    collection = _collection(deals, questions, rng)
    valid = [_row(question, rng) | {"withheld": withheld_in(question.asked)} for question in questions]
    held_out = {tuple(facts.values()) for facts in deals}
    train: list[Row] = []
    while len(train) < TRAIN:
        question = _question(next(usual), rng)
        if tuple(question.answer.values()) not in held_out and not withheld_in(question.wrong):
            train.append(_row(question, rng))
    return Deals(train, valid, collection)


def withheld_in(facts: Mapping[str, str]) -> bool:
    """Whether a combination that training lacks is in a deal, or in what a question names."""
    return any((facts.get(first), facts.get(second)) in pairs for (first, second), pairs in _WITHHELD.items())


def passage(facts: Mapping[str, str], rng: random.Random) -> str:
    """A deal in words."""
    says = _speaker(facts, rng)
    forward, short, backward = _DEALS[facts["deal"]]
    giver, taker = f"the {says('giver')}", f"the {says('taker')}"
    goods = _with_article(f"{says('colour')} {says('goods')}")
    clause = rng.choice(
        (
            f"{giver} {rng.choice(forward)} {goods} to {taker}",
            f"{giver} {rng.choice(short)} {taker} {goods}",
            f"{taker} {rng.choice(backward)} {goods} from {giver}",
        )
    )
    place = f"in the {says('place')}"
    clause = f"{place}, {clause}" if rng.random() < 0.4 else f"{clause} {place}"
    return f"{rng.choice(_OPENINGS)}{clause}.{rng.choice(_ENDINGS)}"


class _Question(NamedTuple):
    """A question, what it names, a deal that answers it, and one that does not, but for a detail."""

    text: str
    asked: Facts
    answer: Facts
    wrong: Facts


def _question(facts: Facts, rng: random.Random, names_withheld: bool = False) -> _Question:
    """A question that a deal answers; perhaps one that names a combination that training lacks."""
    choices = [{name: facts[name] for name in names} for names in _ASKED]
    asked = rng.choice([asked for asked in choices if withheld_in(asked) or not names_withheld])
    return _Question(_words_of(asked, rng), asked, facts, _changed(facts, [*asked], rng))


def _row(question: _Question, rng: random.Random) -> Row:
    """The texts of a row."""
    answer, wrong = passage(question.answer, rng), passage(question.wrong, rng)
    return {"query": question.text, "passage": answer, "negative": wrong}


def _collection(deals: Sequence[Facts], questions: Sequence[_Question], rng: random.Random) -> Collection:
    """Passages of the deals, and which of them agree with all that a question names."""
    passages = {f"p{index}": passage(facts, rng) for index, facts in enumerate(deals)}
    ids = {f"q{index}": question for index, question in enumerate(questions)}
    qrels = {
        name: {
            place: 1 for place, facts in zip(passages, deals, strict=True) if question.asked.items() <= facts.items()
        }
        for name, question in ids.items()
    }
    texts = {name: question.text for name, question in ids.items()}
    return Collection(passages, texts, qrels, {name: withheld_in(ids[name].asked) for name in ids})


def _with_article(words: str) -> str:
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"


def _changed(facts: Facts, asked: Sequence[str], rng: random.Random) -> Facts:
    """The deal with one of the asked fields changed, or with giver and taker exchanged."""
    if {"giver", "taker"} & {*asked} and rng.random() < 0.4:
        return facts | {"giver": facts["taker"], "taker": facts["giver"]}
    field = rng.choice(asked)
    taken = {facts["giver"], facts["taker"]} if field in ("giver", "taker") else {facts[field]}
    return facts | {field: rng.choice([meaning for meaning in WORDS[field] if meaning not in taken])}


def _words_of(asked: Mapping[str, str], rng: random.Random) -> str:
    """What a question says, in words."""
    says = _speaker(asked, rng)
    names = [says(name) for name in ("colour", "goods") if name in asked]
    goods = _with_article(" ".join(names)) if names else "what"
    place = f" in the {says('place')}" if "place" in asked else ""
    if "deal" not in asked:
        people = [f"from the {says('giver')}"] if "giver" in asked else []
        people += [f"to the {says('taker')}"] if "taker" in asked else []
        return " ".join([goods, *people]) + place
    forward, _, backward = _DEALS[asked["deal"]]
    giver = f"the {says('giver')}" if "giver" in asked else "who"
    taker = f"the {says('taker')}" if "taker" in asked else "someone"
    if rng.random() < 0.5 and "taker" in asked:
        source = giver if "giver" in asked else "whom"
        return f"{taker} {rng.choice(backward)} {goods} from {source}{place}?"
    return f"{giver} {rng.choice(forward)} {goods} to {taker}{place}?"


def _speaker(facts: Mapping[str, str], rng: random.Random) -> Callable[[str], str]:
    """A function from a field to a word of its meaning."""
    return lambda field: rng.choice(WORDS[field][facts[field]])


def _deals(rng: random.Random, has_withheld: bool) -> Iterator[Facts]:
    """Deals without end, with a combination that training lacks or without one."""
    while True:
        giver, taker = rng.sample([*WORDS["giver"]], 2)
        facts = {name: rng.choice([*meanings]) for name, meanings in WORDS.items()} | {"giver": giver, "taker": taker}
        if withheld_in(facts) == has_withheld:
            yield facts
