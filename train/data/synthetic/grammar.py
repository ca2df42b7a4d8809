"""English sentences and their German translations, written by a grammar: pairs to train a translator on.

The data are synthetic: the words in nouns, verbs and adverbials, the rules in phrases and clauses, and the
constructions below. Both sentences of a pair come from the same clauses, and the English settles the German wherever
possible, so nearly all of it can be got right. What has to be learned: gender, case and the endings that depend on
them, where verbs stand, and verbs that come apart.

Each pair of `compositional` has a combination from WITHHELD, which the others do not have. Its parts are frequent in
`train`:
- object: this noun as an object of this verb. In `train` they do not even share a sentence.
- modifier: this adjective or number with this noun, before it or said of it. Nor do these.
- clause: this verb, or "should", after because, although, if, that, whether or why. In `train` they stand in all other
  clauses, relative ones too, and other verbs stand after these conjunctions.
"""

import itertools
import random
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from train.data.synthetic import clauses
from train.data.synthetic.clauses import Clause
from train.data.synthetic.kept import kept
from train.data.synthetic.nouns import ADJECTIVES, KINDS, NOUNS, STATES
from train.data.synthetic.phrases import (
    IT,
    NOTHING,
    PEOPLE,
    WHAT_PHRASE,
    WHO_PHRASE,
    Phrase,
    Words,
    cardinal,
    glossary,
)
from train.data.synthetic.verbs import SPECIAL, VERBS_OF, expand
from train.data.synthetic.writer import ACTING, FOLLOWING, GROUP, LATER, SIMPLE, Writer

TRAIN, VALID = 30_000, 500
_WORD = re.compile(r"[\w'-]+")
WITHHELD = {
    "object": "read|newspaper, open|door, eat|pear, take|train, write|postcard, wash|shirt, lose|umbrella, "
    "visit|doctor, sell|car, look for|key, meet|teacher, close|window",
    "modifier": "red|car, big|garden, fresh|bread, small|dog, young|teacher, friendly|neighbour, new|book, "
    "long|letter, clever|boy, poor|student, heavy|suitcase, two|cat, three|letter, four|chair, five|guest, six|shoe, "
    "seven|apple, eight|pupil",
    "clause": "call|, get up|, invite|, should|",
}
_WITHHELD = {kind: frozenset(glossary(table)) for kind, table in WITHHELD.items()}

_CONJUNCTIONS = glossary("because|weil, because|weil, because|weil, although|obwohl, if|wenn, but|aber, and|und")
_GOOD = glossary("good|gut, important|wichtig, possible|möglich, nice|schön, sad|traurig")
_ASKED = glossary("who|, whom|, what|, which|, why|warum, when|wann, where|wo")

# What is said before a clause, whether "that" follows, and the tenses of the clause.
_REPORTS = [(verb, True, FOLLOWING["present"]) for verb in ("say", "think", "know", "believe")]
_REPORTS += [("hope", True, ("will", "can")), ("be", True, ("present", "perfect"))]
_REPORTS += [(verb, False, FOLLOWING["present"]) for verb in ("know", "ask")]

# Verbs of which one may ask when, where, what and whom; and those that are done to each noun.
_DOING = [verb for verb in ACTING if not {"state", "event"} & set(verb.more)]
_SOMEWHERE = [verb._replace(places=[]) for verb in _DOING if verb.where.startswith("in")]
_DONE = [verb for verb in ACTING if verb.objects]
_DONE_TO_THINGS = [verb for verb in _DONE if verb.objects[-1][0] == "acc" and PEOPLE.isdisjoint(verb.objects[-1][1])]
_DONE_TO_PEOPLE = [verb for verb in _DONE if not PEOPLE.isdisjoint(verb.objects[-1][1])]
_DONE_TO = {
    noun.name: [verb for verb in _DONE if {noun.kind, noun.name} & set(verb.objects[-1][1])] for noun in NOUNS.values()
}


class GrammarPairs(NamedTuple):
    """Pairs of an English sentence and its German translation."""

    train: list[Words]
    valid: list[Words]
    test: list[Words]
    compositional: list[Words]


def pairs(seed: int = 0) -> GrammarPairs:
    """The pairs of a seed, the same everywhere. `train` has all words; in `compositional` the kinds take turns."""
    rows = list(itertools.islice(_sentences(random.Random(seed)), TRAIN + 6 * VALID))
    plain = [pair for kind, pair in rows if not kind]
    words = {word for pair in plain[:TRAIN] for word in _WORD.findall(" ".join(pair))}
    fitting = [(kind, pair) for kind, pair in rows if words.issuperset(_WORD.findall(" ".join(pair)))]
    rest = [pair for kind, pair in fitting if not kind][TRAIN:]
    turns = zip(*([pair for pair_kind, pair in fitting if pair_kind == kind] for kind in WITHHELD), strict=False)
    compositional = [pair for turn in turns for pair in turn]
    return GrammarPairs(plain[:TRAIN], rest[:VALID], rest[VALID : 2 * VALID], compositional[:VALID])


def kept_pairs() -> GrammarPairs:
    """`pairs()`, made once for all commands."""
    return GrammarPairs(*kept(pairs))


def _sentences(rng: random.Random) -> Iterator[tuple[str, Words]]:
    """Sentences without end, all different in both languages, and the kind of withheld combination in each or ""."""
    written = set[str]()
    withheld = [{*pair} for pairs in _WITHHELD.values() for pair in pairs if pair[1]]  # not in one sentence of train
    while True:
        writer = Writer(rng, _WITHHELD)
        english, german = rng.choice(_CONSTRUCTIONS)(writer)
        pair = _finished(english), _finished(german)
        if written.isdisjoint(pair) and all(4 <= text.count(" ") + 1 <= 16 for text in pair):
            written |= {*pair}
            if writer.withheld_kinds or not any(words <= writer.words for words in withheld):
                yield min(writer.withheld_kinds, default=""), pair


def _finished(text: str) -> str:
    """A sentence with a capital letter and a full stop."""
    text = re.sub(r",+(?=[?,]|$)", "", text)
    return text[0].upper() + text[1:] + ("" if text.endswith("?") else ".")


def _simple(writer: Writer) -> Words:
    """Someone does something; a time or a place may come first. Or a question whether someone does."""
    if writer.chance(0.2):
        clause = writer.clause(plain=True)
        return clauses.english(clause, "question", "") + "?", clauses.german(clause, "first") + "?"
    main = writer.clause()
    fronts = ["time"] if main.time[0] else []
    if main.verb.where == "in" and main.verb in _DOING and main.place[0]:
        fronts.append("place")
    front = writer.rng.choice(fronts) if fronts and writer.chance(0.5) else "subject"
    return clauses.english(main, "statement", front), clauses.german(main, "second", front)


def _asked(writer: Writer) -> Words:
    """Who does something, what, whom or which, or when, why and where?"""
    kind, wort = writer.rng.choice(_ASKED)
    if kind == "who":
        clause, front = writer.clause(subject=WHO_PHRASE, plain=True), "subject"
    elif kind == "where":
        clause, front = writer.clause(verbs=_SOMEWHERE, plain=True)._replace(place=(kind, wort)), "place"
    elif wort:
        clause, front = writer.clause(verbs=_DOING, plain=True)._replace(time=(kind, wort)), "time"
    else:
        verb, front = writer.rng.choice(_DONE_TO_PEOPLE if kind == "whom" else _DONE_TO_THINGS), "object"
        last = {"whom": WHO_PHRASE, "what": WHAT_PHRASE}.get(kind) or writer.phrase(verb.objects[-1][1], "asked")
        clause = writer.clause(verbs=[verb], last=last, plain=True)
    return clauses.english(clause, "question", front) + "?", clauses.german(clause, "second", front) + "?"


def _combined(writer: Writer) -> Words:
    """Two clauses side by side, or one of them subordinate, after the other or before it."""
    conjunction, early = writer.rng.choice(_CONJUNCTIONS), writer.chance(0.4)
    if conjunction[0] in ("and", "but"):
        return _coordinated(writer, conjunction, early)
    whether = conjunction[0] == "if"
    first = writer.clause(LATER[: 1 if early else None] if whether else (), verbs=ACTING)
    tenses = LATER if early and whether else FOLLOWING[GROUP[first.tense]]
    second = writer.second(first, tenses, _DOING if early else ())
    if early:
        sub = writer.subordinate(conjunction, first)
        return f"{sub[0]}, {clauses.english(second)}", f"{sub[1]}, {clauses.german(second, 'first')}"
    sub = writer.subordinate(conjunction, second)
    return f"{clauses.english(first)} {sub[0]}", f"{clauses.german(first)}, {sub[1]}"


def _coordinated(writer: Writer, conjunction: Words, early: bool) -> Words:
    """Two clauses of the same tense side by side."""
    first = writer.clause(SIMPLE, verbs=ACTING)
    second = writer.second(first, (first.tense,), _DOING if early else ())
    comma = "," if conjunction[0] == "but" else ""
    english = f"{clauses.english(first)}, {conjunction[0]} {clauses.english(second)}"
    return english, f"{clauses.german(first)}{comma} {conjunction[1]} {clauses.german(second)}"


def _report(writer: Writer) -> Words:
    """Someone says that, asks whether, or does not know why something is so; or it is good that it is."""
    verb, that, tenses = writer.rng.choice(_REPORTS)
    conjunction = ("that", "dass") if that else writer.rng.choice([("whether", "ob"), ("why", "warum")])
    if verb == "be":
        subject, complement = IT, writer.rng.choice(_GOOD)
    else:
        subject, complement = writer.phrase(expand("people"), "definite"), NOTHING
    first = Clause(subject, SPECIAL[verb], negative=verb == "know" and not that, complement=complement)
    same = first if verb in ("say", "think", "believe", "hope") else first._replace(subject=IT)
    second = writer.second(same, tenses, _DOING if verb in ("hope", "be") else ())
    sub = writer.subordinate(conjunction, second)
    return f"{clauses.english(first)} {sub[0]}", f"{clauses.german(first)}, {sub[1]}"


def _relative(writer: Writer) -> Words:
    """A sentence whose object or subject has a relative clause."""
    if writer.chance(0.5):
        verb = writer.rng.choice(_DONE_TO_THINGS)._replace(places=[])
        head = writer.phrase(verb.objects[-1][1], "head")
        main = writer.clause(verbs=[verb], last=head, plain=True)
        sub = _about(writer, head)
        return f"{clauses.english(main)} {sub[0]}", f"{clauses.german(main)}, {sub[1]}"
    person = writer.chance(0.7)
    head = writer.phrase(["adult", "young"], "head") if person else writer.phrase(expand("things"), "said of")
    sub = _about(writer, head)
    subject = head._replace(
        english=f"{head.english} {sub[0]}", german=(f"{head.german[0]}, {sub[1]},", *head.german[1:])
    )
    main = writer.clause(subject=subject) if person else writer.described(subject, KINDS[head.kind])
    return clauses.english(main), clauses.german(main)


def _about(writer: Writer, head: Phrase) -> Words:
    """A relative clause: what it does, or what is done to it."""
    verbs = _DONE_TO[head.noun]
    if verbs and (writer.chance(0.4) or not VERBS_OF[head.kind]):
        clause, front = writer.clause(SIMPLE, verbs=verbs, last=head.relative()), "object"
    else:
        clause, front = writer.clause((*SIMPLE, "want to", "can"), head.relative()), "subject"
    return clauses.english(clause, "statement", front), clauses.german(clause, "last", front)


def _quality(writer: Writer) -> Words:
    """How something or someone is, how old, or in comparison."""
    draw = writer.rng.random()
    kinds = expand("adult, young, kin, names, pronouns, goods, vehicle, transport, event, machine")
    kind = writer.rng.choice(kinds)
    subject = writer.phrase([kind], "said of")
    compared = [adjective for adjective in KINDS.get(kind, ()) if ADJECTIVES[adjective].english_comparative]
    clause = Clause(subject, SPECIAL["be"])
    if kind in PEOPLE and draw < 0.6:
        age = cardinal(writer.rng.randint(3, 17) if kind == "young" else writer.rng.randint(20, 99))
        clause = clause._replace(complement=(f"{age[0]} years old", f"{age[1]} Jahre alt"))
    elif draw < 0.7 and compared:
        adjective = ADJECTIVES[writer.rng.choice(compared)]
        standard = writer.phrase([kind], "definite", [subject])
        english = f"{adjective.english_comparative} than {standard.english}"
        clause = clause._replace(complement=(english, f"{adjective.german_comparative} als {standard.german[0]}"))
    else:
        clause = writer.described(subject, KINDS.get(kind, STATES), writer.rng.choice(["present", "past"]))
    return clauses.english(clause), clauses.german(clause)


_CONSTRUCTIONS: list[Callable[[Writer], Words]] = [
    *[_simple] * 4,
    _asked,
    *[_combined] * 3,
    *[_report, _relative, _quality] * 2,
]
