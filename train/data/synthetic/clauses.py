"""One clause, written in English and in German: how words inflect, and where in a clause they stand.

Of German word order: the finite verb is second, first in a yes-no question, and last in a subordinate clause; what belongs to it and is not
finite ends the clause. Between them stand the subject, pronouns, definite datives, times, definite objects, places, indefinite objects,
and directions.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from train.data.synthetic.lexicon import ADJECTIVES, NAMES, Noun, Verb

Words = tuple[str, str]  # in English and in German
NOTHING = ("", "")
PEOPLE = frozenset({"adult", "young", "kin", "junior", "names", "pronouns"})


def glossary(table: str) -> list[Words]:
    """From "two words|zwei Wörter, ..."."""
    return [(first, second) for first, _, second in (item.partition("|") for item in table.split(", "))]


def _table(rows: str) -> dict[str, list[str]]:
    """Nominative, accusative and dative of masculine, feminine, neuter and plural."""
    return {gender: row.replace("-", "").split(" ") for gender, row in zip("mfnp", rows.split(", "), strict=True)}


_ARTICLE = _table("der den dem, die die der, das das dem, die die den")
_RELATIVE = _table("der den dem, die die der, das das dem, die die denen")
_STRONG = _table("er en em, e e er, es es em, e e en")
_WEAK = _table("e en en, e e en, e e en, en en en")
_MIXED = _table("er en en, e e en, es es en, en en en")
_EIN = _table("- en em, e e er, - - em, e e en")
_NONE = _table("- - -, - - -, - - -, - - -")

# What stands before a noun: the German stem, its endings, and those of adjectives after it. Numerals are like "".
_ARTICLES = {"": ("", _NONE, _STRONG), "the": ("", _ARTICLE, _WEAK)}
_ARTICLES |= {word: (stem, _STRONG, _WEAK) for word, stem in glossary("this|dies, every|jed, all the|all, which|welch")}
_ARTICLES |= {word: (stem, _STRONG, _STRONG) for word, stem in glossary("many|viel, some|einig, how many|wie viel")}
_ARTICLES |= {
    word: (stem, _EIN, _MIXED)
    for word, stem in glossary(
        "a|ein, no|kein, not a|kein, my|mein, your|dein, his|sein, her|ihr, our|unser, their|ihr"
    )
}
_INDEFINITE = frozenset({"", "a", "not a", "no", "many", "some", "all the", "how many"})
OBJECTIVE = {"I": "me", "he": "him", "she": "her", "we": "us", "they": "them", "who": "whom"}

# English auxiliary and what links it to the infinitive; German present for I, you, he and they; the times that go with it.
MODALS = {
    "will": ("will", "", "werde wirst wird werden", "later"),
    "can": ("can", "", "kann kannst kann können", "later"),
    "should": ("should", "", "sollte solltest sollte sollten", "later"),
    "would like to": ("would", "like to", "möchte möchtest möchte möchten", "later"),
    "want to": ("do", "want to", "will willst will wollen", "later"),
    "have to": ("do", "have to", "muss musst muss müssen", "later"),
    "be allowed to": ("be", "allowed to", "darf darfst darf dürfen", "later"),
    "wanted to": ("do", "want to", "wollte wolltest wollte wollten", "past"),
    "had to": ("do", "have to", "musste musstest musste mussten", "past"),
    "like to": ("do", "like to", "", "habit"),
}
_NUMBERS = glossary(
    "one|ein, two|zwei, three|drei, four|vier, five|fünf, six|sechs, seven|sieben, eight|acht, nine|neun, ten|zehn, eleven|elf, "
    "twelve|zwölf, thirteen|dreizehn, fourteen|vierzehn, fifteen|fünfzehn, sixteen|sechzehn, seventeen|siebzehn, eighteen|achtzehn, "
    "nineteen|neunzehn"
)
_TENS = glossary(
    "twenty|zwanzig, thirty|dreißig, forty|vierzig, fifty|fünfzig, sixty|sechzig, seventy|siebzig, eighty|achtzig, ninety|neunzig"
)


def number(value: int) -> Words:
    """A cardinal below a hundred: German says the ones before the tens."""
    if value < 20:
        return _NUMBERS[value - 1]
    (ten, zehn), (one, ein) = _TENS[value // 10 - 2], _NUMBERS[value % 10 - 1]
    return (f"{ten}-{one}", f"{ein}und{zehn}") if value % 10 else (ten, zehn)


# Tenses, and how often they come up; what times one goes with, its own or those of its modal; and which go in a clause with one of these.
SIMPLE = ("present", "past", "perfect")
TENSES = {"present": 10, "past": 5, "perfect": 10} | dict.fromkeys(MODALS, 1)
GROUP = {tense: MODALS[tense][3] if tense in MODALS else tense for tense in TENSES}
LATER = ("present", *(tense for tense in MODALS if GROUP[tense] == "later"))
FOLLOWING: dict[str, Sequence[str]] = {"past": ("past", "wanted to", "had to"), "habit": ("present",)}
FOLLOWING |= dict.fromkeys(
    ("present", "perfect", "later"), ("present", "perfect", "want to", "have to", "can", "should")
)

CLOCK = [(f"at {number(hour)[0]} o'clock", f"um {number(hour)[1]} Uhr") for hour in range(2, 13)]
CLOCK += [(f"at half past {number(hour)[0]}", f"um halb {number(hour + 1)[1]}") for hour in range(2, 12)]
OFTEN = glossary("often|oft, always|immer, usually|meistens, sometimes|manchmal, rarely|selten, never|nie")
ALREADY = glossary("already|schon, just|gerade, never|nie")
CONJUNCTIONS = glossary("because|weil, because|weil, because|weil, although|obwohl, if|wenn, but|aber, and|und")
GOOD = glossary("good|gut, important|wichtig, possible|möglich, nice|schön, sad|traurig")
ASKED = glossary("who|, whom|, what|, which|, why|warum, when|wann, where|wo")
WEATHER = glossary("cold|kalt, dark|dunkel, late|spät")
VERY = glossary("|, |, very |sehr , too |zu ")
TOO = frozenset(
    "big small long short old young expensive heavy loud slow fast cold full boring tired ill hungry nervous".split()
)

# Determiners, repeated if they come up more often, for one thing, several, and what is not counted: of a subject, of an object, of one in a
# negated clause or with "often"; of what is known, has a relative clause, is described, is asked for, is a place.
DETERMINERS: dict[str, Sequence[str]] = {
    "subject": ("the the the the a this every no", "the the this count many some all_the", "the"),
    "object": ("the the a a a this own", "the - count count many some own the_count all_the", "- - the"),
    "negative": ("the not_a not_a this own", "the not_a own", "not_a not_a the"),
    "often": ("the a a own", "- - the own", "-"),
    "known": ("the the the this own", "the the this own the_count", "the"),
    "head": ("the the a", "the the the_count count", "the"),
    "said of": ("the the this", "the the this the_count", "the"),
    "asked": ("which", "which how_many how_many", "which"),
    "place": ("the the the the the this own a", "", ""),
}
OWNED = frozenset("animal dish drink text clothes furniture luggage crockery thing vehicle machine room".split())
MANY = frozenset("adult young fruit food text plant crockery".split())
SOME = frozenset({"no", "every", "all the", "many", "some"})  # with them, negation would be ambiguous


class Phrase(NamedTuple):
    """A subject or an object; in German in the nominative, accusative and dative. `who` is the English pronoun for it."""

    english: str
    german: tuple[str, str, str]
    person: int = 3
    plural: bool = False
    gender: str = ""
    who: str = ""
    kind: str = ""
    noun: str = ""
    determiner: str = "the"

    @property
    def form(self) -> int:
        """The index of its form in a conjugation."""
        return 3 if self.plural else self.person - 1

    def relative(self) -> "Phrase":
        """The pronoun that starts a relative clause about it."""
        nominative, accusative, dative = _RELATIVE["p" if self.plural else self.gender]
        return self._replace(
            english="who" if self.kind in PEOPLE else "that", german=(nominative, accusative, dative), determiner="the"
        )


def _pronoun(line: str) -> Phrase:
    english, nominative, accusative, dative, person = line.split()
    return Phrase(
        english,
        (nominative, accusative, dative),
        int(person),
        english in ("we", "they"),
        "",
        english,
        "pronouns",
        english,
    )


_LINES = (
    "I ich mich mir 1",
    "you du dich dir 2",
    "he er ihn ihm 3",
    "she sie sie ihr 3",
    "we wir uns uns 1",
    "they sie sie ihnen 3",
)
PRONOUNS = {line.split()[0]: _pronoun(line) for line in _LINES}
NAMED = [Phrase(name, (name, name, name), who=who, kind="names", noun=name) for name, who in NAMES.items()]
IT, WHAT = Phrase("it", ("es", "es", "")), Phrase("what", ("was", "was", ""), noun="what")
WHO = Phrase("who", ("wer", "wen", "wem"), kind="adult", noun="who")
OWN = {"I": "my", "you": "your", "he": "his", "she": "her", "we": "our", "they": "their"}


def nominal(
    noun: Noun, determiner: str, adjectives: Sequence[str] = (), plural: bool = False, count: int = 0
) -> Phrase:
    """A noun with what stands before it; "not a" is what negates an indefinite object."""
    stem, endings, declension = _ARTICLES[determiner]
    gender = "p" if plural else noun.gender
    several = number(count) if count else NOTHING
    cases = []
    for case in range(3):
        head = noun.germans if plural or (noun.weak and case) else noun.german
        head += "n" * (plural and case == 2 and head[-1] not in "ns")
        described = [ADJECTIVES[each][1] + declension[gender][case] for each in adjectives]
        cases.append(" ".join(filter(None, [stem + endings[gender][case], several[1], *described, head])))
    articles = {"a": "" if plural else "a", "not a": "a" if noun.german and noun.englishes and not plural else "any"}
    article = {"this": "these"}.get(determiner, determiner) if plural else determiner
    article = articles.get(determiner, article)
    text = " ".join(filter(None, [article, several[0], *adjectives, noun.englishes if plural else noun.english]))
    text = re.sub(r"\ba (?=[aeiou])", "an ", text)
    who = "" if noun.kind not in PEOPLE else "they" if plural else {"m": "he", "f": "she", "n": ""}[noun.gender]
    return Phrase(
        text,
        (cases[0], cases[1], cases[2]),
        3,
        plural,
        noun.gender,
        who,
        noun.kind,
        noun.english or noun.englishes,
        determiner,
    )


class Clause(NamedTuple):
    """What one verb says, before it is put into words. Objects have a case, "dat", or a preposition and a case, "auf+acc"."""

    subject: Phrase
    verb: Verb
    tense: str = "present"
    objects: tuple[tuple[str, Phrase], ...] = ()
    negative: bool = False
    adverb: Words = NOTHING
    complement: Words = NOTHING
    place: Words = NOTHING
    time: Words = NOTHING


def _third(base: str) -> str:
    return (
        "has" if base == "have" else re.sub(r"([^aeiou])ys$", r"\1ies", re.sub(r"([sxo]|ch|sh)s$", r"\1es", base + "s"))
    )


def _english_forms(base: str, past: str, when: str) -> list[str]:
    """For I, you, he and they."""
    if base == "be":
        return ["was", "were", "was", "were"] if when == "past" else ["am", "are", "is", "are"]
    return [past] * 4 if when == "past" else [base, base, _third(base), base]


def _english_verbs(clause: Clause, do: bool) -> Words:
    """The auxiliary, if there is one or it has to be ("do"), and the rest."""
    (base, past, participle), index, tense = clause.verb.english, clause.subject.form, clause.tense
    if tense == "perfect":
        return ("has" if index == 2 else "have"), f"{participle} {clause.verb.particle}"
    rest = clause.verb.particle
    if tense in MODALS:
        helper, link, _, group = MODALS[tense]
        rest = f"{link} {clause.verb.name}".strip()
        if helper not in ("do", "be"):
            return helper, rest
        tense, (base, _, rest) = (
            "past" if group == "past" else "present",
            ("be", "", rest) if helper == "be" else rest.partition(" "),
        )
        past = {"have": "had", "want": "wanted"}.get(base, "")
    form = _english_forms(base, past, tense)[index]
    if base == "be":
        return form, rest
    return (_english_forms("do", "did", tense)[index], f"{base} {rest}") if do else ("", f"{form} {rest}")


def english(clause: Clause, order: str = "statement", front: str = "subject") -> str:
    """As a "statement" or a "question" with the slot `front` first: subject, object, time or place."""
    asks = order == "question" and front != "subject"
    auxiliary, rest = _english_verbs(clause, asks or clause.negative)
    if clause.negative:
        auxiliary = "cannot" if auxiliary == "can" else auxiliary + " not"
    slots = [(_slot(role, clause), OBJECTIVE.get(phrase.english, phrase.english)) for role, phrase in clause.objects]
    slots += [("complement", clause.complement[0]), ("place", clause.place[0]), ("time", clause.time[0])]
    first = [text for slot, text in slots if slot == front]
    after = [text for slot, text in slots if slot != front]
    subject = clause.subject.english
    return _join([*first, *([auxiliary, subject] if asks else [subject, auxiliary]), clause.adverb[0], rest, *after])


def _slot(role: str, clause: Clause) -> str:
    return "dative" if role == "dat" and len(clause.objects) == 2 else "object"


def _german_forms(infinitive: str, third: str, past: str, when: str) -> list[str]:
    """For ich, du, er and sie (plural)."""
    if when == "past":
        return [past, past + "st", past, past + ("n" if past.endswith("e") else "en")]
    if infinitive == "sein":
        return ["bin", "bist", "ist", "sind"]
    stem = third.removesuffix("t")
    first = third if stem == third else infinitive[:-1] + "e" * infinitive.endswith("rn")
    return [first, stem + ("t" if stem[-1] in "sßz" else "st"), third, infinitive]


def _german_verbs(clause: Clause) -> Words:
    """The finite verb, and what ends the clause."""
    infinitive, third, past, participle = clause.verb.german
    index = clause.subject.form
    if clause.tense == "perfect":
        auxiliary = ("sein", "ist", "") if participle.startswith("ist ") else ("haben", "hat", "")
        return _german_forms(*auxiliary, "present")[index], participle.removeprefix("ist ")
    if modal := MODALS.get(clause.tense, ("", "", "", ""))[2]:
        return modal.split()[index], clause.verb.prefix + infinitive
    return _german_forms(infinitive, third, past, clause.tense)[index], clause.verb.prefix


def _german_slots(clause: Clause) -> list[Words]:
    """What stands around the verbs, as slots and texts in their order."""
    negated = any(phrase.determiner == "not a" for _, phrase in clause.objects)
    adverb = "gern" if clause.tense == "like to" else clause.adverb[1]
    early = clause.negative or adverb in ("gern", "nie", "schon")
    late = any("+" in role for role, _ in clause.objects) and not adverb
    slots = [(0, "subject", clause.subject.german[0]), (4, "time", clause.time[1]), (6, "adverb", adverb)]
    slots += [
        (10 if late else 5, "not", "nicht" * (clause.negative and not negated)),
        (12, "complement", clause.complement[1]),
    ]
    slots += [(8 if clause.verb.where == "in" else 12, "place", clause.place[1])]
    for role, phrase in clause.objects:
        *preposition, case = role.split("+")
        rank = 3 if early or phrase.kind == "names" else 7  # of a definite accusative
        if preposition or phrase.kind == "pronouns":
            rank = 11 if preposition else 1
        elif phrase.determiner in _INDEFINITE or case == "dat":
            rank = 9 if phrase.determiner in _INDEFINITE else 2
        slots.append(
            (rank, _slot(role, clause), contract(" ".join([*preposition, phrase.german[1 if case == "acc" else 2]])))
        )
    return [(slot, text) for _, slot, text in sorted(slots, key=lambda each: each[0])]


def german(clause: Clause, order: str = "second", front: str = "subject") -> str:
    """With the finite verb "first", "second" after the slot `front`, or "last", after the others."""
    finite, rest = _german_verbs(clause)
    slots = _german_slots(clause)
    first = [text for slot, text in slots if slot == front]
    after = [text for slot, text in slots if slot != front]
    if order == "last":
        return _join([*first, *after, rest + finite if rest == clause.verb.prefix else f"{rest} {finite}"])
    return _join([*first, finite, *after, rest] if order == "second" else [finite, *first, *after, rest])


def contract(text: str) -> str:
    """A preposition and the article that melts into it."""
    for long, short in (
        ("in dem", "im"),
        ("in das", "ins"),
        ("an dem", "am"),
        ("von dem", "vom"),
        ("zu dem", "zum"),
        ("zu der", "zur"),
    ):
        if text.startswith(long + " "):
            return short + text.removeprefix(long)
    return text


def _join(parts: Sequence[str]) -> str:
    return re.sub(r"\s+", " ", " ".join(filter(None, parts))).strip()
