"""One clause in English and in German: how verbs inflect, and where words stand.

German word order: the finite verb is second, first in a yes-no question, and last in a subordinate clause. The rest
of the verb ends the clause. Between them stand the subject, pronouns, definite datives, times, definite objects,
places, indefinite objects, and directions.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from train.data.synthetic.nouns import regular_s
from train.data.synthetic.phrases import NOTHING, Phrase, Words
from train.data.synthetic.verbs import Verb

_INDEFINITE = frozenset({"", "a", "not a", "no", "many", "some", "all the", "how many"})
OBJECTIVE = {"I": "me", "he": "him", "she": "her", "we": "us", "they": "them", "who": "whom"}


class Modal(NamedTuple):
    """An English auxiliary, the link to its infinitive, the German present for I, you, he and they, and the times."""

    auxiliary: str
    link: str
    german: str
    times: str


MODALS = {
    "will": Modal("will", "", "werde wirst wird werden", "later"),
    "can": Modal("can", "", "kann kannst kann können", "later"),
    "should": Modal("should", "", "sollte solltest sollte sollten", "later"),
    "would like to": Modal("would", "like to", "möchte möchtest möchte möchten", "later"),
    "want to": Modal("do", "want to", "will willst will wollen", "later"),
    "have to": Modal("do", "have to", "muss musst muss müssen", "later"),
    "be allowed to": Modal("be", "allowed to", "darf darfst darf dürfen", "later"),
    "wanted to": Modal("do", "want to", "wollte wolltest wollte wollten", "past"),
    "had to": Modal("do", "have to", "musste musstest musste mussten", "past"),
    "like to": Modal("do", "like to", "", "habit"),
}


class Clause(NamedTuple):
    """What a verb says, not yet in words. Objects have a case, "dat", or a preposition and a case, "auf+acc"."""

    subject: Phrase
    verb: Verb
    tense: str = "present"
    objects: tuple[tuple[str, Phrase], ...] = ()
    negative: bool = False
    adverb: Words = NOTHING
    complement: Words = NOTHING
    place: Words = NOTHING
    time: Words = NOTHING


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


def _english_verbs(clause: Clause, do: bool) -> Words:
    """The auxiliary, if there is one or there must be ("do"), and the rest."""
    base, past, participle = clause.verb.english
    index, tense, rest = clause.subject.form, clause.tense, clause.verb.particle
    if tense == "perfect":
        return ("has" if index == 2 else "have"), f"{participle} {rest}"
    if tense in MODALS:
        modal = MODALS[tense]
        rest = f"{modal.link} {clause.verb.name}".strip()
        if modal.auxiliary not in ("do", "be"):
            return modal.auxiliary, rest
        tense = "past" if modal.times == "past" else "present"
        if modal.auxiliary == "be":
            base = "be"
        else:
            base, _, rest = rest.partition(" ")
        past = {"have": "had", "want": "wanted"}.get(base, "")
    form = _english_forms(base, past, tense)[index]
    if base == "be":
        return form, rest
    return (_english_forms("do", "did", tense)[index], f"{base} {rest}") if do else ("", f"{form} {rest}")


def _english_forms(base: str, past: str, tense: str) -> list[str]:
    """For I, you, he and they."""
    if base == "be":
        return ["was", "were", "was", "were"] if tense == "past" else ["am", "are", "is", "are"]
    return [past] * 4 if tense == "past" else [base, base, third_person(base), base]


def third_person(base: str) -> str:
    """The English form for he and she."""
    return "has" if base == "have" else re.sub(r"os$", "oes", regular_s(base + "s"))


def _slot(role: str, clause: Clause) -> str:
    return "dative" if role == "dat" and len(clause.objects) == 2 else "object"


def german(clause: Clause, order: str = "second", front: str = "subject") -> str:
    """With the finite verb "first", "second" after the slot `front`, or "last", after all slots."""
    finite, rest = _german_verbs(clause)
    slots = _german_slots(clause)
    first = [text for slot, text in slots if slot == front]
    after = [text for slot, text in slots if slot != front]
    if order == "last":
        return _join([*first, *after, rest + finite if rest == clause.verb.prefix else f"{rest} {finite}"])
    return _join([*first, finite, *after, rest] if order == "second" else [finite, *first, *after, rest])


def _german_verbs(clause: Clause) -> Words:
    """The finite verb, and the rest of the verb, which ends the clause."""
    infinitive, third, past, participle = clause.verb.german
    index = clause.subject.form
    if clause.tense == "perfect":
        auxiliary = ("sein", "ist", "") if participle.startswith("ist ") else ("haben", "hat", "")
        return german_forms(*auxiliary, "present")[index], participle.removeprefix("ist ")
    if clause.tense in MODALS and MODALS[clause.tense].german:
        return MODALS[clause.tense].german.split()[index], clause.verb.prefix + infinitive
    return german_forms(infinitive, third, past, clause.tense)[index], clause.verb.prefix


def german_forms(infinitive: str, third: str, past: str, tense: str) -> list[str]:
    """For ich, du, er and sie (plural)."""
    if tense == "past":
        return [past, past + "st", past, past + ("n" if past.endswith("e") else "en")]
    if infinitive == "sein":
        return ["bin", "bist", "ist", "sind"]
    stem = third.removesuffix("t")
    first = third if stem == third else infinitive[:-1] + ("e" if infinitive.endswith("rn") else "")
    return [first, stem + ("t" if stem[-1] in "sßz" else "st"), third, infinitive]


def _german_slots(clause: Clause) -> list[Words]:
    """Slots and texts of all but the verbs, in their order."""
    negated = any(phrase.determiner == "not a" for _, phrase in clause.objects)
    adverb = "gern" if clause.tense == "like to" else clause.adverb[1]
    early = clause.negative or adverb in ("gern", "nie", "schon")
    late = any("+" in role for role, _ in clause.objects) and not adverb
    slots = [
        (0, "subject", clause.subject.german[0]),
        (4, "time", clause.time[1]),
        (6, "adverb", adverb),
        (10 if late else 5, "not", "nicht" if clause.negative and not negated else ""),
        (12, "complement", clause.complement[1]),
        (8 if clause.verb.where == "in" else 12, "place", clause.place[1]),
    ]
    for role, phrase in clause.objects:
        *preposition, case = role.split("+")
        text = contract(" ".join([*preposition, phrase.german[1 if case == "acc" else 2]]))
        slots.append((_german_rank(role, phrase, early), _slot(role, clause), text))
    return [(slot, text) for _, slot, text in sorted(slots, key=lambda ranked: ranked[0])]


def _german_rank(role: str, phrase: Phrase, early: bool) -> int:
    """Where an object stands among the slots; `early` if negation or an adverb follows definite objects."""
    if "+" in role or phrase.kind == "pronouns":
        return 11 if "+" in role else 1
    if phrase.determiner in _INDEFINITE:
        return 9
    if role == "dat":
        return 2
    return 3 if early or phrase.kind == "names" else 7


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
