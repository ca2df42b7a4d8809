"""English sentences and their German translations, written by a grammar: pairs to train a translator on.

The data are synthetic: the words in train.data.lexicon, the rules in train.data.clauses and the constructions below are all there is to
them. Both sentences of a pair come from the same clauses, and the English settles the German wherever possible, so nearly all of it can
be got right. What has to be learned: gender, case and the endings that depend on them, where verbs stand, and verbs that come apart.

Each pair of `compositional` has a combination from WITHHELD, which the others have not, while what it combines is frequent in `train`:
- object: this noun as an object of this verb. In `train` they do not even share a sentence.
- modifier: this adjective or number with this noun, before it or said of it. Nor do these.
- clause: this verb, or "should", after because, although, if, that, whether or why. In `train` they stand in all other clauses, relative
  ones too, and other verbs stand after these conjunctions.
"""

import itertools
import random
import re
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from train.data.synthetic import clauses, lexicon
from train.data.synthetic.clauses import (
    DETERMINERS,
    NOTHING,
    PEOPLE,
    PRONOUNS,
    SIMPLE,
    SOME,
    Clause,
    Phrase,
    Words,
    glossary,
    number,
)
from train.data.synthetic.lexicon import KINDS, NOUNS, SPECIAL, STATES, VERBS, VERBS_OF, Noun, Verb

Names = Collection[str]
Maybe = Phrase | None
TRAIN, VALID = 30_000, 500
_WORD = re.compile(r"[\w'-]+")
WITHHELD = {
    "object": "read|newspaper, open|door, eat|pear, take|train, write|postcard, wash|shirt, lose|umbrella, visit|doctor, sell|car, "
    "look for|key, meet|teacher, close|window",
    "modifier": "red|car, big|garden, fresh|bread, small|dog, young|teacher, friendly|neighbour, new|book, long|letter, clever|boy, "
    "poor|student, heavy|suitcase, two|cat, three|letter, four|chair, five|guest, six|shoe, seven|apple, eight|pupil",
    "clause": "call|, get up|, invite|, should|",
}
_WITHHELD = {kind: frozenset(glossary(table)) for kind, table in WITHHELD.items()}

# What is said before a clause, whether "that" follows, and the tenses of the clause.
_REPORTS = [(verb, True, clauses.FOLLOWING["present"]) for verb in ("say", "think", "know", "believe")]
_REPORTS += [("hope", True, ("will", "can")), ("be", True, ("present", "perfect"))]
_REPORTS += [(verb, False, clauses.FOLLOWING["present"]) for verb in ("know", "ask")]
_ACTING = VERBS_OF["adult"]
_DOING = [verb for verb in _ACTING if not {"state", "event"} & set(verb.more)]
_SOMEWHERE = [verb._replace(places=[]) for verb in _DOING if verb.where.startswith("in")]  # to ask where
_DONE = [verb for verb in _ACTING if verb.objects]
_ASKABLE = [[verb for verb in _DONE if verb.objects[-1][0] == "acc" and PEOPLE.isdisjoint(verb.objects[-1][1])]]
_ASKABLE += [
    [verb for verb in _DONE if not PEOPLE.isdisjoint(verb.objects[-1][1])]
]  # the first is done to things, this to people
_DONE_TO = {
    noun.name: [verb for verb in _DONE if {noun.kind, noun.name} & set(verb.objects[-1][1])] for noun in NOUNS.values()
}


class Corpus(NamedTuple):
    """Pairs of an English sentence and its German translation."""

    train: list[Words]
    valid: list[Words]
    test: list[Words]
    compositional: list[Words]


class _Writer:
    """Writes a sentence, and notes which words it relates to each other."""

    def __init__(self, rng: random.Random):
        self.rng, self.chance = rng, lambda probability: rng.random() < probability
        self.words, self.withheld = set[str](), set[str]()  # the second: of which kinds there are withheld combinations

    def relate(self, kind: str, first: str, second: str = "") -> None:
        """Notes that two words stand together."""
        self.words |= {first, second}
        if (first, second) in _WITHHELD[kind]:
            self.withheld.add(kind)

    def phrase(self, kinds: Names, mode: str, others: Collection[Phrase] = ()) -> Phrase:
        """Someone or something of one of these kinds, if possible not yet mentioned; the first of the others may be its owner."""
        persons = {each.person for each in others if each.person < 3} | {each.noun for each in others}
        hidden = {"names", "pronouns", "kin", "junior"} if mode in ("head", "asked") else set()
        kinds = [kind for kind in kinds if kind not in hidden]
        while True:
            kind, again = self.rng.choice(kinds), self.chance(0.02)
            if kind in ("names", "pronouns"):
                found = self.rng.choice(clauses.NAMED if kind == "names" else list(PRONOUNS.values()))
                if not persons & {found.noun, found.person} and (again or found.noun not in self.words):
                    self.words.add(found.noun)
                    return found
            else:
                noun = self.rng.choice(lexicon.NOUNS_OF[kind]) if kind in KINDS else NOUNS[kind]
                if again or noun.name not in self.words:
                    return self.nominal(noun, mode, next((each.who for each in others if each.who), ""))

    def nominal(self, noun: Noun, mode: str, owner: str = "") -> Phrase:
        """The noun with a determiner of that mode, often with adjectives, sometimes with a number."""
        plural = not noun.english or (
            bool(noun.englishes) and noun.kind not in ("room", "place", "nature") and self.chance(0.35)
        )
        mode = "known" if mode == "subject" and noun.kind not in PEOPLE else mode
        determiner = (
            self.rng.choice(DETERMINERS[mode][plural if noun.englishes else 2].split())
            .replace("_", " ")
            .replace("-", "")
        )
        if noun.kind in ("kin", "junior") or (determiner == "own" and noun.kind in clauses.OWNED):
            determiner = (
                clauses.OWN[owner]
                if owner and noun.kind != "junior" and self.chance(0.7)
                else self.rng.choice(["my", "our"])
            )
        elif determiner == "own" or (not determiner and noun.kind in PEOPLE):
            determiner = "the"
        count = 0
        if determiner.endswith("count"):
            most = (30 if self.chance(0.2) else 12) if noun.kind in clauses.MANY else 4
            count, determiner = self.rng.randint(2, most), determiner[:-5].strip()
            self.relate("modifier", number(count)[0], noun.name)
        plain, colours = (
            [each for each in KINDS[noun.kind] if (each in lexicon.COLOURS) == colour] for colour in (False, True)
        )
        drawn = self.rng.random() if mode != "said of" else 1.0
        adjectives = [self.rng.choice(plain)] * (drawn < 0.3) + [self.rng.choice(colours or [""])] * (
            bool(colours) and 0.25 < drawn < 0.4
        )
        for each in adjectives or [""]:
            self.relate("modifier", each, noun.name)
        return clauses.nominal(noun, determiner, adjectives, plural, count)

    def clause(
        self, tenses: Names = (), subject: Maybe = None, verbs: Sequence[Verb] = (), last: Maybe = None, plain=False
    ) -> Clause:
        """Someone does something, to `last` if given. A plain clause has no negation, no times, and no subject like "every man" or "I"."""
        weights: dict[str, int] = {}
        while not weights:
            verb = self.rng.choice(verbs or (VERBS_OF[subject.kind] if subject else VERBS))
            kind, again = (
                subject.kind if subject else self.rng.choice(verb.subjects),
                verb.name not in self.words or self.chance(0.05),
            )
            state, event = "state" in verb.more, "event" in verb.more or kind not in PEOPLE
            possible = {"present", "past"} if state else {*SIMPLE, "will"} if event else set(clauses.TENSES)
            if verb.english[0] == verb.english[1] or (subject and subject.person == 2):
                possible.discard("past")  # "they put", present or past? And German avoids "du lasest".
            weights = {each: clauses.TENSES[each] for each in tenses or clauses.TENSES if each in possible and again}
        tense = self.rng.choices(list(weights), list(weights.values()))[0]
        others = [last or clauses.WHAT] + [PRONOUNS["you"]] * (tense == "past") + [PRONOUNS["I"]] * plain
        who = subject or self.phrase([kind], "known" if plain else "subject", others)
        fixed = plain or who.determiner in SOME
        negative = not fixed and tense != "would like to" and self.chance(0.15)
        adverb = NOTHING
        if not (fixed or negative or state) and tense in SIMPLE and self.chance(0.18):
            adverb = self.rng.choice(clauses.ALREADY if tense == "perfect" else clauses.OFTEN)
        self.words.add(verb.name)
        clause, often = Clause(who, verb, tense, (), negative, adverb), tense == "like to" or adverb in clauses.OFTEN
        for role, kinds in verb.objects:
            known = (role != "acc" and (negative or len(verb.objects) == 2)) or verb.name in (
                "know",
                "like",
                "love",
                "belong to",
            )
            mode = "known" if known else "negative" if negative else "often" if often else "object"
            others = [who, *(each for _, each in clause.objects)]
            phrase = last if last and role == verb.objects[-1][0] else self.phrase(kinds, mode, others)
            self.relate("object", verb.name, phrase.noun)
            clause = clause._replace(objects=(*clause.objects, (role, phrase)))
        if verb.places and ("!" in verb.where or (adverb not in clauses.ALREADY and self.chance(0.3))):
            clause = clause._replace(place=self.place(self.rng.choice(verb.places), verb.where == "to!"))
        if not (plain or state or adverb[0]) and self.chance(0.35):
            times = (
                clauses.CLOCK
                if "clock" in verb.more and tense != "perfect" and self.chance(0.5)
                else lexicon.TIMES[clauses.GROUP[tense]]
            )
            clause = clause._replace(
                time=self.rng.choice([each for each in times if not (negative and "every" in each[0])])
            )
        return clause

    def place(self, place: str, to: bool) -> Words:
        if place not in NOUNS:
            return lexicon.FIXED[place, to]
        english, german = lexicon.PLACES[place, to]
        found = self.nominal(NOUNS[place], "place")
        return f"{english} {found.english}", clauses.contract(
            f"{german} {found.german[1 if to and german != 'zu' else 2]}"
        )

    def described(self, subject: Phrase, adjectives: Sequence[str], tense: str = "present") -> Clause:
        adjective = self.rng.choice([each for each in adjectives if each not in self.words])
        self.relate("modifier", adjective, subject.noun)
        very, sehr = self.rng.choice(
            clauses.VERY[: 4 if adjective in clauses.TOO else 1 if adjective in lexicon.COLOURS else 3]
        )
        negative = not very and subject.determiner not in SOME and self.chance(0.15)
        return Clause(
            subject,
            SPECIAL["be"],
            tense,
            (),
            negative,
            complement=(very + adjective, sehr + lexicon.ADJECTIVES[adjective][0]),
        )

    def second(self, first: Clause, tenses: Names, verbs: Sequence[Verb] = ()) -> Clause:
        """A clause that goes with another: often about the same subject, sometimes about how someone is, or about the weather."""
        same = PRONOUNS.get(first.subject.who) if self.chance(0.5) else None
        when, drawn = "past" if "past" in tenses else "present", self.rng.random()
        if verbs or drawn > 0.35 or (same == PRONOUNS["you"] and when == "past"):
            return self.clause(tenses, same, verbs or _ACTING)
        if drawn < 0.1:
            return Clause(clauses.IT, SPECIAL["be"], when, complement=self.rng.choice(clauses.WEATHER))
        return self.described(same or self.phrase(["adult", "kin", "names"], "known", [first.subject]), STATES, when)

    def under(self, conjunction: Words, clause: Clause) -> Words:
        """The clause after a conjunction."""
        self.relate("clause", clause.verb.name)
        self.relate("clause", clause.tense)
        return f"{conjunction[0]} {clauses.english(clause)}", f"{conjunction[1]} {clauses.german(clause, 'last')}"

    def simple(self) -> Words:
        """Someone does something; a time or a place may come first. Or a question whether someone does."""
        if self.chance(0.2):
            clause = self.clause(plain=True)
            return clauses.english(clause, "question", "") + "?", clauses.german(clause, "first") + "?"
        main = self.clause()
        fronts = ["time"] * bool(main.time[0]) + ["place"] * (
            main.verb.where == "in" and main.verb in _DOING and bool(main.place[0])
        )
        front = self.rng.choice(fronts) if fronts and self.chance(0.5) else "subject"
        return clauses.english(main, "statement", front), clauses.german(main, "second", front)

    def asked(self) -> Words:
        """Who does something, what, whom or which, or when, why and where?"""
        kind, wort = self.rng.choice(clauses.ASKED)
        if kind == "who":
            clause, front = self.clause(subject=clauses.WHO, plain=True), "subject"
        elif kind == "where":
            clause, front = self.clause(verbs=_SOMEWHERE, plain=True)._replace(place=(kind, wort)), "place"
        elif wort:
            clause, front = self.clause(verbs=_DOING, plain=True)._replace(time=(kind, wort)), "time"
        else:
            verb, front = self.rng.choice(_ASKABLE[kind == "whom"]), "object"
            last = {"whom": clauses.WHO, "what": clauses.WHAT}.get(kind) or self.phrase(verb.objects[-1][1], "asked")
            clause = self.clause(verbs=[verb], last=last, plain=True)
        return clauses.english(clause, "question", front) + "?", clauses.german(clause, "second", front) + "?"

    def combined(self) -> Words:
        """Two clauses side by side, or one of them under the other, after it or before it."""
        conjunction, early = self.rng.choice(clauses.CONJUNCTIONS), self.chance(0.4)
        side, whether = conjunction[0] in ("and", "but"), conjunction[0] == "if"
        first = self.clause(SIMPLE if side else clauses.LATER[: 1 if early else None] if whether else (), verbs=_ACTING)
        tenses = (
            (first.tense,)
            if side
            else clauses.LATER
            if early and whether
            else clauses.FOLLOWING[clauses.GROUP[first.tense]]
        )
        second = self.second(first, tenses, _DOING if early else ())
        if side:
            comma = "," * (conjunction[0] == "but")
            english, german = (
                f"{clauses.english(first)}, {conjunction[0]}",
                f"{clauses.german(first)}{comma} {conjunction[1]}",
            )
            return f"{english} {clauses.english(second)}", f"{german} {clauses.german(second)}"
        if early:
            sub = self.under(conjunction, first)
            return f"{sub[0]}, {clauses.english(second)}", f"{sub[1]}, {clauses.german(second, 'first')}"
        sub = self.under(conjunction, second)
        return f"{clauses.english(first)} {sub[0]}", f"{clauses.german(first)}, {sub[1]}"

    def report(self) -> Words:
        """Someone says that, asks whether, or does not know why something is so; or it is good that it is."""
        verb, that, tenses = self.rng.choice(_REPORTS)
        conjunction = ("that", "dass") if that else self.rng.choice([("whether", "ob"), ("why", "warum")])
        who, complement = (
            (clauses.IT, self.rng.choice(clauses.GOOD))
            if verb == "be"
            else (self.phrase(lexicon.expand("people"), "known"), NOTHING)
        )
        first = Clause(who, SPECIAL[verb], negative=verb == "know" and not that, complement=complement)
        same = first if verb in ("say", "think", "believe", "hope") else first._replace(subject=clauses.IT)
        sub = self.under(conjunction, self.second(same, tenses, _DOING if verb in ("hope", "be") else ()))
        return f"{clauses.english(first)} {sub[0]}", f"{clauses.german(first)}, {sub[1]}"

    def about(self, head: Phrase) -> Words:
        """A relative clause: what it does, or what is done to it."""
        verbs = _DONE_TO[head.noun]
        if verbs and (self.chance(0.4) or not VERBS_OF[head.kind]):
            clause, front = self.clause(SIMPLE, verbs=verbs, last=head.relative()), "object"
        else:
            clause, front = self.clause((*SIMPLE, "want to", "can"), head.relative()), "subject"
        return clauses.english(clause, "statement", front), clauses.german(clause, "last", front)

    def relative(self) -> Words:
        """A sentence whose object or subject has a relative clause."""
        if self.chance(0.5):
            verb = self.rng.choice(_ASKABLE[0])._replace(places=[])
            head = self.phrase(verb.objects[-1][1], "head")
            main, sub = self.clause(verbs=[verb], last=head, plain=True), self.about(head)
            return f"{clauses.english(main)} {sub[0]}", f"{clauses.german(main)}, {sub[1]}"
        person = self.chance(0.7)
        head = self.phrase(["adult", "young"], "head") if person else self.phrase(lexicon.expand("things"), "said of")
        sub = self.about(head)
        whole = head._replace(
            english=f"{head.english} {sub[0]}", german=(f"{head.german[0]}, {sub[1]},", *head.german[1:])
        )
        main = self.clause(subject=whole) if person else self.described(whole, KINDS[head.kind])
        return clauses.english(main), clauses.german(main)

    def quality(self) -> Words:
        """How something or someone is, how old, or in comparison."""
        drawn, kinds = (
            self.rng.random(),
            lexicon.expand("adult, young, kin, names, pronouns, goods, vehicle, transport, event, machine"),
        )
        kind = self.rng.choice(kinds)
        subject, adjectives = (
            self.phrase([kind], "said of"),
            [each for each in KINDS.get(kind, ()) if lexicon.ADJECTIVES[each][2]],
        )
        clause = Clause(subject, SPECIAL["be"])
        if kind in PEOPLE and drawn < 0.6:
            age = number(self.rng.randint(3, 17) if kind == "young" else self.rng.randint(20, 99))
            clause = clause._replace(complement=(f"{age[0]} years old", f"{age[1]} Jahre alt"))
        elif drawn < 0.7 and adjectives:
            (_, _, more, mehr), other = (
                lexicon.ADJECTIVES[self.rng.choice(adjectives)],
                self.phrase([kind], "known", [subject]),
            )
            clause = clause._replace(complement=(f"{more} than {other.english}", f"{mehr} als {other.german[0]}"))
        else:
            clause = self.described(subject, KINDS.get(kind, STATES), self.rng.choice(["present", "past"]))
        return clauses.english(clause), clauses.german(clause)


_CONSTRUCTIONS = [*["simple"] * 4, "asked", *["combined"] * 3, *["report", "relative", "quality"] * 2]


def _finished(text: str) -> str:
    text = re.sub(r",+(?=[?,]|$)", "", text)
    return text[0].upper() + text[1:] + "." * (not text.endswith("?"))


def _sentences(rng: random.Random) -> Iterator[tuple[str, Words]]:
    """Sentences without end, all different in both languages, and which kind of withheld combination is in them."""
    taken, together = set[str](), [{*pair} for pairs in _WITHHELD.values() for pair in pairs if pair[1]]
    while True:
        writer = _Writer(rng)
        english, german = getattr(writer, rng.choice(_CONSTRUCTIONS))()
        pair = _finished(english), _finished(german)
        if taken.isdisjoint(pair) and all(4 <= text.count(" ") + 1 <= 16 for text in pair):
            taken |= {*pair}
            if writer.withheld or not any(words <= writer.words for words in together):
                yield min(writer.withheld, default=""), pair


def pairs(seed: int = 0) -> Corpus:
    """The pairs of a seed, the same everywhere. Every word of the other three is in `train`; of `compositional`, the kinds take turns."""
    rows = list(itertools.islice(_sentences(random.Random(seed)), TRAIN + 6 * VALID))
    plain = [pair for kind, pair in rows if not kind]
    known = {word for pair in plain[:TRAIN] for word in _WORD.findall(" ".join(pair))}
    fitting = [(kind, pair) for kind, pair in rows if known.issuperset(_WORD.findall(" ".join(pair)))]
    rest = [pair for kind, pair in fitting if not kind][TRAIN:]
    turns = zip(*([pair for each, pair in fitting if each == kind] for kind in WITHHELD), strict=False)
    return Corpus(
        plain[:TRAIN], rest[:VALID], rest[VALID : 2 * VALID], [pair for turn in turns for pair in turn][:VALID]
    )
