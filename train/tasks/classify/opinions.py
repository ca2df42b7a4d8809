"""Opinions in plain English, written by a grammar: negative, neutral and positive sentences to train a classifier on.

The data are synthetic: the tables below are all of them, and a sentence owes its label to its construction. A
template of sign -1 inverts what it contains ("hardly dull" is praise), a contrast takes the side of its main clause,
and questions and facts are neutral. No single word decides a label: naive Bayes on words gets 0.75 of the validation
rows that have only words of the training rows.

Words with a star never occur in the training rows. The accuracy on validation rows with such a word (naive Bayes:
0.66) shows whether the model knows words that this task did not teach, from pre-training for instance.
"""

import random
import re

LABELS = ("negative", "neutral", "positive")

# A topic: things; how they are used, after "would" and after "have"; what joins a part to its thing. Then praise |
# blame for the thing itself and for its parts (which are plural if they end in s), and facts.
_TOPICS = """
film, thriller, drama, western; see, seen; in
it: gripping, clever, moving, memorable, *absorbing | dull, shallow, silly, forgettable, *tiresome
acting: convincing, lively, subtle, *nuanced | wooden, stiff, clumsy, *listless
script: witty, clever, fresh, *ingenious | silly, clumsy, predictable, *muddled
ending: moving, satisfying, clever, *poignant | predictable, abrupt, silly, *implausible
facts: the {thing} lasted {number} minutes; the {thing} was made in Norway; the {thing} was shown on {day}

restaurant, bistro, canteen, diner; eat at, eaten at; at
it: cosy, lively, welcoming, *charming | gloomy, noisy, shabby, *dingy
food: tasty, fresh, filling, *wholesome | bland, greasy, stale, *insipid
bread: tasty, fresh, crusty, *fluffy | dry, tough, stale, *soggy
service: prompt, friendly, attentive, *courteous | slow, rude, careless, *brusque
facts: the {thing} had {number} tables; the {thing} opened at noon on {day}; the meal cost {number} euros

hotel, hostel, guesthouse, inn; stay at, stayed at; at
it: cosy, quiet, comfortable, welcoming, *charming | noisy, gloomy, shabby, *dingy
beds: soft, clean, comfortable, *snug | lumpy, uncomfortable, damp, *saggy
bathrooms: clean, bright, spacious, *airy | dirty, cramped, damp, *grubby
staff: friendly, helpful, attentive, *courteous | slow, rude, careless, *surly
facts: the {thing} had {number} rooms; the {thing} stood near the harbour; the room was free until {day}

phone, laptop, tablet, camera; buy, bought; on
it: fast, reliable, handy, *nimble | slow, clumsy, unreliable, *sluggish
screen: bright, sharp, clear, *vivid | dim, blurry, dull, *murky
speakers: clear, powerful, crisp, *resonant | tinny, muffled, weak, *scratchy
buttons: responsive, sturdy, smooth, *precise | stiff, awkward, slippery, *fiddly
facts: the {thing} came in {few} colours; the {thing} arrived on {day}; the box held a cable and a manual

book, novel, memoir, travel guide; read, read; in
it: gripping, thoughtful, readable, memorable, *absorbing | dull, shallow, pompous, forgettable, *tiresome
chapters: gripping, thoughtful, readable, *poignant | predictable, silly, confusing, *muddled
dialogue: convincing, lively, witty, *endearing | wooden, clumsy, silly, *implausible
pictures: lovely, sharp, bright, *exquisite | blurry, dull, dreary, *murky
facts: the {thing} was {few} hundred pages long; the {thing} came out on a {day}; the {thing} was printed in Denmark

concert, recital, show, festival; go to, been to; at
it: lively, stirring, memorable, *rousing | dull, dreary, chaotic, *lacklustre
singer: confident, witty, lively, *soulful | nervous, wooden, careless, *listless
songs: catchy, moving, fresh, *tuneful | dreary, predictable, silly, *monotonous
seats: comfortable, clean, spacious, *roomy | cramped, hard, uncomfortable, *rickety
facts: the {thing} began at eight on {day}; {number} musicians took part in the {thing}; the tickets cost {number} euros

drill, sander, mower, mixer; buy, bought; on
it: handy, reliable, sturdy, *robust | clumsy, noisy, unreliable, *cumbersome
handle: comfortable, sturdy, smooth, *snug | slippery, awkward, uncomfortable, *rickety
motor: powerful, quiet, reliable, *dependable | weak, noisy, unreliable, *feeble
facts: the {thing} weighed {few} kilos; the {thing} came with {few} spare parts; the {thing} went on sale on {day}

train, tram, night train, airport shuttle; take, taken; on
it: quiet, comfortable, punctual, reliable, *restful | crowded, slow, noisy, *stuffy
seats: comfortable, clean, spacious, *roomy | cramped, hard, dirty, *grubby
crew: friendly, helpful, attentive, *courteous | rude, careless, impatient, *surly
announcements: clear, helpful, witty, *lucid | muffled, confusing, shrill, *garbled
facts: the {thing} left at nine on {day}; the {thing} ran every {number} minutes; the {thing} stopped {few} times
"""
_STARRED = frozenset(re.findall(r"\*(\w+)", _TOPICS))

# What else stands in slots, in pairs of praise | blame where it depends on that.
_WORDS = {
    "loved": "loved, liked, enjoyed | hated, disliked",
    "better": "better | worse",
    "treat": "treat, delight, success, joy | disappointment, failure, chore, mistake",
    "hoped": "hoped | feared",
    "awaited": "hoped for, expected | feared, expected",
    "gladly": "gladly, happily | never",
    "number": "fifteen, twenty, thirty, forty, fifty, sixty, eighty, ninety",
    "few": "two, three, four, five, six, seven",
    "day": "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday",
    "person": "my sister/she, my brother/he, my aunt/she, my father/he, our neighbour/he, a colleague/she, a friend/he",
}

# Templates and their signs. {x} is the thing or a part of it, {adj} a word for it and {other} one that says the
# opposite.
_CLAIMS = {"{x} {was} {adj}": +1, "{x} {was} really {adj}": +1, "{x} {was} {better} than most": +1}
_CLAUSES = _CLAIMS | {
    "I {loved} {x}": +1,
    "I found {x} {adj}": +1,
    "{x} could not have been {better}": +1,
    "{x} {was} far {better} than I had {hoped}": +1,
    "the {thing} turned out to be a {treat}": +1,
    "I have rarely {seen} a {thing} so {adj}": +1,
    "I would {gladly} {see} this {thing} again": +1,
    "{x} {was} not {adj} at all": -1,
    "{x} {was} hardly {adj}": -1,
    "{x} {was} anything but {adj}": -1,
    "{x} {was} not as {adj} as I had {hoped}": -1,
    "nobody would call {x} {adj}": -1,
    "there was nothing {adj} about {x}": -1,
    "I cannot say that I {loved} {x}": -1,
    "not one of us {loved} {x}": -1,
    "the {thing} was hardly a {treat}": -1,
    "I have {seen} {better} {thing}s": -1,
}

# {main} and {detail} are clauses, the second about a part, and {counter} is one about a part that says the opposite;
# {claim} is a claim.
_OPINIONS = {
    "plain": {"{main}": +1},
    "after a fact": {"{fact}, and {detail}": +1},
    "contrast": {"{counter}, but {main}": +1, "although {counter}, {main}": +1, "{main}, even if {counter}": +1},
    "report": {
        "{person} told me that {claim}, and I agree": +1,
        "{person} asked me whether {claim}, and the answer is yes": +1,
        "{person} called {x} {adj}; {she} is right": +1,
        "I had read that {claim}, and it is true": +1,
        "nobody could deny that {claim}": +1,
        "{person} told me that {claim}, but I disagree": -1,
        "{person} asked me whether {claim}, and the answer is no": -1,
        "{person} called {x} {adj}; {she} is wrong": -1,
        "I had read that {claim}, but it is false": -1,
        "it is simply not true that {claim}": -1,
        "do not believe anyone who says that {claim}": -1,
    },
    "hope": {
        "I had {awaited} a {adj} {thing}, and that is what I got": +1,
        "I had {awaited} a {adj} {thing} and got a {other} one": -1,
        "I had {awaited} a {adj} {thing}; it was nothing of the kind": -1,
    },
}
_NEUTRAL = {
    "fact": {
        "{fact}": 0,
        "{fact}, according to {person}": 0,
        "{person} told me that {fact}": 0,
        "I had read that {fact}": 0,
    },
    "open": {
        "{person} asked me whether {claim}": 0,
        "the review does not say whether {claim}": 0,
        "{person} will find out on {day} whether {claim}": 0,
        "some call this {thing} {adj}; others call it {other}": 0,
    },
}


def generate(seed: int = 0, train: int = 6000, valid: int = 1000) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Training and validation rows {"text", "label", "group"}, all different, and the same on every machine.

    Labels take turns, so they are balanced. The group is "unseen" for every fourth validation row, which has a
    starred word, and else "seen". The validation rows do not depend on `train`, and fewer training rows are the first
    of more. Raises ValueError if there are not that many different sentences.
    """
    rng, texts = random.Random(seed), set[str]()
    kinds = [(LABELS[n % 3], n % 4 == 3) for n in range(valid)] + [(LABELS[n % 3], False) for n in range(train)]
    rows = []
    for label, unseen in kinds:
        row = _row(rng, label, unseen, texts)
        texts.add(row["text"])
        rows.append(row)
    return rows[valid:], rows[:valid]


def _row(rng: random.Random, label: str, unseen: bool, texts: set[str]) -> dict[str, str]:
    """A row with a text that is not among `texts`."""
    for _ in range(1000):
        text = _Sentence(rng).write(LABELS.index(label) - 1)
        starred = not _STARRED.isdisjoint(re.findall(r"\w+", text))
        if text not in texts and len(text.split()) >= 5 and unseen == starred:
            return {"text": text, "label": label, "group": "unseen" if unseen else "seen"}
    raise ValueError(f"no new {label} sentence found after {len(texts)}; ask for fewer")


class _Sentence:
    """A sentence about a thing, with the words of its topic; its clauses are about different parts."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        head, *lines = rng.choice(_TOPICS.replace("*", "").strip().split("\n\n")).split("\n")
        nouns, verbs, self.preposition = head.split("; ")
        self.words = dict(line.split(": ") for line in lines)
        self.facts = self.words.pop("facts").split("; ")
        self.parts = [part for part in self.words if part != "it"]
        rng.shuffle(self.parts)
        person, she = rng.choice(_WORDS["person"].split(", ")).split("/")
        see, seen = verbs.split(", ")
        self.slots = {"thing": rng.choice(nouns.split(", ")), "see": see, "seen": seen, "person": person, "she": she}

    def write(self, value: int) -> str:
        """The sentence, with the value -1 for blame, 0 for no opinion, +1 for praise."""
        kind = self.rng.choice(list((_OPINIONS if value else _NEUTRAL).values()))
        template, sign = self.choose(kind)
        # In these the rest of the sentence says what the parts belong to.
        has_context = "{detail}" in template or "{counter}" in template
        self.of = "" if has_context else f" {self.preposition} this {self.slots['thing']}"
        text = self.fill(template, value * sign or self.rng.choice([-1, 1]))
        text = re.sub(r"\ba (?=[aeiou])", "an ", text)
        return text[0].upper() + text[1:] + "."

    def choose(self, templates: dict[str, int]) -> tuple[str, int]:
        """A template and its sign. +1 comes up three times as often as -1: people put most things straight."""
        return self.rng.choice([template for template in templates.items() for _ in range(2 + template[1])])

    def fill(self, template: str, value: int, part: str = "it") -> str:
        """The template with its slots filled by words of that value about that part of the thing."""
        return re.sub(r"{(\w+)}", lambda slot: self.word(slot[1], value, part), template)

    def word(self, slot: str, value: int, part: str) -> str:
        """The content of a slot: a clause, filled in its turn, or words."""
        if slot in ("main", "detail", "counter", "claim"):
            return self.clause(slot, value)
        if slot == "fact":
            return self.fill(self.rng.choice(self.facts), value)
        if slot == "x":
            return f"this {self.slots['thing']}" if part == "it" else f"the {part}{self.of}"
        if slot == "was":
            return "were" if part.endswith("s") else "was"
        if slot == "other":
            return self.word("adj", -value, part)
        options = self.words[part] if slot == "adj" else self.slots.get(slot) or _WORDS[slot]
        praise, _, blame = options.partition(" | ")
        return self.rng.choice((blame if blame and value < 0 else praise).split(", "))

    def clause(self, slot: str, value: int) -> str:
        """A clause of that value about the thing or a part; a "counter" says the opposite."""
        clauses = _CLAIMS if slot == "claim" else _CLAUSES
        fitting = {clause: sign for clause, sign in clauses.items() if slot == "main" or "{x}" in clause}
        clause, sign = self.choose(fitting)
        about_thing = "{x}" not in clause or (slot in ("main", "claim") and self.rng.random() < 0.4)
        value = -value * sign if slot == "counter" else value * sign
        return self.fill(clause, value, "it" if about_thing else self.parts.pop())
