"""A writer of clauses: chooses words, tenses, determiners, places and times that go together."""

import random
from collections.abc import Collection, Mapping, Sequence

from train.data.synthetic import clauses
from train.data.synthetic.adverbials import FIXED, PLACES, TIMES
from train.data.synthetic.clauses import MODALS, Clause
from train.data.synthetic.nouns import ADJECTIVES, COLOURS, KINDS, NOUNS, NOUNS_OF, STATES, Noun
from train.data.synthetic.phrases import (
    IT,
    NAMED,
    NOTHING,
    OWN,
    PEOPLE,
    PRONOUNS,
    WHAT_PHRASE,
    Phrase,
    Words,
    cardinal,
    glossary,
    nominal,
)
from train.data.synthetic.verbs import SPECIAL, VERBS, VERBS_OF, Verb

Names = Collection[str]

# Tenses, and how often they come up; the times that go with each; and the tenses of a clause that goes with it.
SIMPLE = ("present", "past", "perfect")
TENSES = {"present": 10, "past": 5, "perfect": 10} | dict.fromkeys(MODALS, 1)
GROUP = {tense: MODALS[tense].times if tense in MODALS else tense for tense in TENSES}
LATER = ("present", *(tense for tense in MODALS if GROUP[tense] == "later"))
FOLLOWING: dict[str, Sequence[str]] = {"past": ("past", "wanted to", "had to"), "habit": ("present",)}
FOLLOWING |= dict.fromkeys(
    ("present", "perfect", "later"), ("present", "perfect", "want to", "have to", "can", "should")
)

_CLOCK = [(f"at {cardinal(hour)[0]} o'clock", f"um {cardinal(hour)[1]} Uhr") for hour in range(2, 13)]
_CLOCK += [(f"at half past {cardinal(hour)[0]}", f"um halb {cardinal(hour + 1)[1]}") for hour in range(2, 12)]
_OFTEN = glossary("often|oft, always|immer, usually|meistens, sometimes|manchmal, rarely|selten, never|nie")
_ALREADY = glossary("already|schon, just|gerade, never|nie")
_WEATHER = glossary("cold|kalt, dark|dunkel, late|spät")
_VERY = glossary("|, |, very |sehr , too |zu ")
_TOO = frozenset(
    "big small long short old young expensive heavy loud slow fast cold full boring tired ill hungry nervous".split()
)

# Determiners, repeated if they come up more often, for one thing, several, and what is not counted: of a subject, of
# an object, of an object of a negated clause or with "often"; of what is definite, has a relative clause, is
# described, is asked for, is a place.
_DETERMINERS: dict[str, Sequence[str]] = {
    "subject": ("the the the the a this every no", "the the this count many some all_the", "the"),
    "object": ("the the a a a this own", "the - count count many some own the_count all_the", "- - the"),
    "negative": ("the not_a not_a this own", "the not_a own", "not_a not_a the"),
    "often": ("the a a own", "- - the own", "-"),
    "definite": ("the the the this own", "the the this own the_count", "the"),
    "head": ("the the a", "the the the_count count", "the"),
    "said of": ("the the this", "the the this the_count", "the"),
    "asked": ("which", "which how_many how_many", "which"),
    "place": ("the the the the the this own a", "", ""),
}
_OWNED = frozenset("animal dish drink text clothes furniture luggage crockery thing vehicle machine room".split())
_MANY = frozenset("adult young fruit food text plant crockery".split())
_AMBIGUOUS = frozenset({"no", "every", "all the", "many", "some"})  # with them, negation would be ambiguous
_DEFINITE_OBJECTS = ("know", "like", "love", "belong to")

ACTING = VERBS_OF["adult"]


class Writer:
    """Writes clauses of one sentence, and notes its words and which withheld combinations it has.

    withheld: by kind of relation, the pairs of words that are noted
    """

    def __init__(self, rng: random.Random, withheld: Mapping[str, frozenset[Words]]):
        self.rng = rng
        self.words = set[str]()
        self.withheld_kinds = set[str]()
        self._withheld = withheld

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.rng.random() < probability

    def relate(self, kind: str, first: str, second: str = "") -> None:
        """Notes that two words stand together."""
        self.words |= {first, second}
        if (first, second) in self._withheld[kind]:
            self.withheld_kinds.add(kind)

    def phrase(self, kinds: Names, mode: str, mentioned: Collection[Phrase] = ()) -> Phrase:
        """Someone or something of these kinds, mostly not yet mentioned; the first person mentioned may own it."""
        taken = {phrase.person for phrase in mentioned if phrase.person < 3} | {phrase.noun for phrase in mentioned}
        hidden = {"names", "pronouns", "kin", "junior"} if mode in ("head", "asked") else set()
        kinds = [kind for kind in kinds if kind not in hidden]
        while True:
            kind, repeat = self.rng.choice(kinds), self.chance(0.02)
            if kind in ("names", "pronouns"):
                person = self.rng.choice(NAMED if kind == "names" else list(PRONOUNS.values()))
                if not taken & {person.noun, person.person} and (repeat or person.noun not in self.words):
                    self.words.add(person.noun)
                    return person
            else:
                noun = self.rng.choice(NOUNS_OF[kind]) if kind in KINDS else NOUNS[kind]
                if repeat or noun.name not in self.words:
                    return self.nominal(noun, mode, next((phrase.who for phrase in mentioned if phrase.who), ""))

    def nominal(self, noun: Noun, mode: str, owner: str = "") -> Phrase:
        """The noun with a determiner of that mode, often with adjectives, sometimes with a number."""
        plural = not noun.english or (
            bool(noun.english_plural) and noun.kind not in ("room", "place", "nature") and self.chance(0.35)
        )
        determiner = self._determiner(noun, mode, plural, owner)
        count = 0
        if determiner.endswith("count"):
            max_count = (30 if self.chance(0.2) else 12) if noun.kind in _MANY else 4
            count = self.rng.randint(2, max_count)
            determiner = determiner.removesuffix("count").strip()
            self.relate("modifier", cardinal(count)[0], noun.name)
        adjectives = self._adjectives(noun, 1.0 if mode == "said of" else self.rng.random())
        for adjective in adjectives or [""]:
            self.relate("modifier", adjective, noun.name)
        return nominal(noun, determiner, adjectives, plural, count)

    def _determiner(self, noun: Noun, mode: str, plural: bool, owner: str) -> str:
        mode = "definite" if mode == "subject" and noun.kind not in PEOPLE else mode
        choices = _DETERMINERS[mode][plural if noun.english_plural else 2].split()
        determiner = self.rng.choice(choices).replace("_", " ").replace("-", "")
        if noun.kind in ("kin", "junior") or (determiner == "own" and noun.kind in _OWNED):
            if owner and noun.kind != "junior" and self.chance(0.7):
                return OWN[owner]
            return self.rng.choice(["my", "our"])
        return "the" if determiner == "own" or (not determiner and noun.kind in PEOPLE) else determiner

    def _adjectives(self, noun: Noun, draw: float) -> list[str]:
        """Below 0.3 an adjective, from 0.25 to 0.4 a colour."""
        plain = self.rng.choice([adjective for adjective in KINDS[noun.kind] if adjective not in COLOURS])
        colours = [adjective for adjective in KINDS[noun.kind] if adjective in COLOURS]
        colour = self.rng.choice(colours or [""])
        adjectives = [plain] if draw < 0.3 else []
        return [*adjectives, colour] if colours and 0.25 < draw < 0.4 else adjectives

    def clause(
        self,
        tenses: Names = (),
        subject: Phrase | None = None,
        verbs: Sequence[Verb] = (),
        last: Phrase | None = None,
        plain: bool = False,
    ) -> Clause:
        """Someone does something, to `last` if it is there.

        A plain clause has no negation, no times, and no subject like "every man" or "I".
        """
        verb, kind, tense = self._verb(tenses, subject, verbs)
        mentioned = [last or WHAT_PHRASE]
        mentioned += [PRONOUNS["you"]] if tense == "past" else []
        mentioned += [PRONOUNS["I"]] if plain else []
        actor = subject or self.phrase([kind], "definite" if plain else "subject", mentioned)
        state = "state" in verb.more
        fixed = plain or actor.determiner in _AMBIGUOUS
        negative = not fixed and tense != "would like to" and self.chance(0.15)
        adverb = NOTHING
        if not (fixed or negative or state) and tense in SIMPLE and self.chance(0.18):
            adverb = self.rng.choice(_ALREADY if tense == "perfect" else _OFTEN)
        self.words.add(verb.name)
        clause = self._with_objects(Clause(actor, verb, tense, (), negative, adverb), last)
        if verb.places and ("!" in verb.where or (adverb not in _ALREADY and self.chance(0.3))):
            clause = clause._replace(place=self.place(self.rng.choice(verb.places), verb.where == "to!"))
        if not (plain or state or adverb[0]) and self.chance(0.35):
            clause = clause._replace(time=self._time(clause))
        return clause

    def _verb(self, tenses: Names, subject: Phrase | None, verbs: Sequence[Verb]) -> tuple[Verb, str, str]:
        """A verb, mostly not yet used, the kind of its subject, and a tense that both have."""
        while True:
            verb = self.rng.choice(verbs or (VERBS_OF[subject.kind] if subject else VERBS))
            kind = subject.kind if subject else self.rng.choice(verb.subjects)
            fresh = verb.name not in self.words or self.chance(0.05)
            if "state" in verb.more:
                possible = {"present", "past"}
            elif "event" in verb.more or kind not in PEOPLE:
                possible = {*SIMPLE, "will"}
            else:
                possible = set(TENSES)
            if verb.english[0] == verb.english[1] or (subject and subject.person == 2):
                possible.discard("past")  # "they put", present or past? And German avoids "du lasest".
            weights = {tense: TENSES[tense] for tense in tenses or TENSES if tense in possible and fresh}
            if weights:
                return verb, kind, self.rng.choices(list(weights), list(weights.values()))[0]

    def _with_objects(self, clause: Clause, last: Phrase | None) -> Clause:
        """The clause with the objects of its verb; the last one is given if there is `last`."""
        verb = clause.verb
        for role, kinds in verb.objects:
            if (role != "acc" and (clause.negative or len(verb.objects) == 2)) or verb.name in _DEFINITE_OBJECTS:
                mode = "definite"
            elif clause.negative:
                mode = "negative"
            else:
                mode = "often" if clause.tense == "like to" or clause.adverb in _OFTEN else "object"
            if last and role == verb.objects[-1][0]:
                phrase = last
            else:
                phrase = self.phrase(kinds, mode, [clause.subject, *(phrase for _, phrase in clause.objects)])
            self.relate("object", verb.name, phrase.noun)
            clause = clause._replace(objects=(*clause.objects, (role, phrase)))
        return clause

    def _time(self, clause: Clause) -> Words:
        """An hour or a time that the tense allows; in a negated clause none with "every"."""
        hour = "clock" in clause.verb.more and clause.tense != "perfect" and self.chance(0.5)
        times = _CLOCK if hour else TIMES[GROUP[clause.tense]]
        return self.rng.choice([time for time in times if not (clause.negative and "every" in time[0])])

    def place(self, place: str, to: bool) -> Words:
        """Being at a place, or going there."""
        if place not in NOUNS:
            return FIXED[place, to]
        english, german = PLACES[place, to]
        phrase = self.nominal(NOUNS[place], "place")
        case = 1 if to and german != "zu" else 2
        return f"{english} {phrase.english}", clauses.contract(f"{german} {phrase.german[case]}")

    def described(self, subject: Phrase, adjectives: Sequence[str], tense: str = "present") -> Clause:
        """The subject is very big, or too old, or not green."""
        adjective = self.rng.choice([adjective for adjective in adjectives if adjective not in self.words])
        self.relate("modifier", adjective, subject.noun)
        choices = 4 if adjective in _TOO else 1 if adjective in COLOURS else 3
        very, sehr = self.rng.choice(_VERY[:choices])
        negative = not very and subject.determiner not in _AMBIGUOUS and self.chance(0.15)
        complement = (very + adjective, sehr + ADJECTIVES[adjective].german)
        return Clause(subject, SPECIAL["be"], tense, (), negative, complement=complement)

    def second(self, first: Clause, tenses: Names, verbs: Sequence[Verb] = ()) -> Clause:
        """A clause that goes with another: often of the same subject, sometimes how someone is, or the weather."""
        same = PRONOUNS.get(first.subject.who) if self.chance(0.5) else None
        tense, draw = "past" if "past" in tenses else "present", self.rng.random()
        if verbs or draw > 0.35 or (same == PRONOUNS["you"] and tense == "past"):
            return self.clause(tenses, same, verbs or ACTING)
        if draw < 0.1:
            return Clause(IT, SPECIAL["be"], tense, complement=self.rng.choice(_WEATHER))
        subject = same or self.phrase(["adult", "kin", "names"], "definite", [first.subject])
        return self.described(subject, STATES, tense)

    def subordinate(self, conjunction: Words, clause: Clause) -> Words:
        """The clause after a conjunction."""
        self.relate("clause", clause.verb.name)
        self.relate("clause", clause.tense)
        return f"{conjunction[0]} {clauses.english(clause)}", f"{conjunction[1]} {clauses.german(clause, 'last')}"
