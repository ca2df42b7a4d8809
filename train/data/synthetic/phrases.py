"""Subjects and objects of the grammar in English and German: nouns with what stands before them, pronouns, names."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from train.data.synthetic.nouns import ADJECTIVES, NAMES, Noun

Words = tuple[str, str]  # in English and in German
NOTHING = ("", "")
PEOPLE = frozenset({"adult", "young", "kin", "junior", "names", "pronouns"})


def glossary(table: str) -> list[Words]:
    """From "two words|zwei Wörter, ..."."""
    return [(first, second) for first, _, second in (item.partition("|") for item in table.split(", "))]


def _declension(rows: str) -> dict[str, list[str]]:
    """Nominative, accusative and dative of masculine, feminine, neuter and plural."""
    return {gender: row.replace("-", "").split(" ") for gender, row in zip("mfnp", rows.split(", "), strict=True)}


_ARTICLE = _declension("der den dem, die die der, das das dem, die die den")
_RELATIVE = _declension("der den dem, die die der, das das dem, die die denen")
_STRONG = _declension("er en em, e e er, es es em, e e en")
_WEAK = _declension("e en en, e e en, e e en, en en en")
_MIXED = _declension("er en en, e e en, es es en, en en en")
_EIN = _declension("- en em, e e er, - - em, e e en")
_NONE = _declension("- - -, - - -, - - -, - - -")

# What stands before a noun: the German stem, its endings, and those of adjectives after it. Numerals are like "".
ARTICLES = {"": ("", _NONE, _STRONG), "the": ("", _ARTICLE, _WEAK)}
ARTICLES |= {word: (stem, _STRONG, _WEAK) for word, stem in glossary("this|dies, every|jed, all the|all, which|welch")}
ARTICLES |= {word: (stem, _STRONG, _STRONG) for word, stem in glossary("many|viel, some|einig, how many|wie viel")}
ARTICLES |= {
    word: (stem, _EIN, _MIXED)
    for word, stem in glossary(
        "a|ein, no|kein, not a|kein, my|mein, your|dein, his|sein, her|ihr, our|unser, their|ihr"
    )
}
_UNITS = glossary(
    "one|ein, two|zwei, three|drei, four|vier, five|fünf, six|sechs, seven|sieben, eight|acht, nine|neun, ten|zehn, "
    "eleven|elf, twelve|zwölf, thirteen|dreizehn, fourteen|vierzehn, fifteen|fünfzehn, sixteen|sechzehn, "
    "seventeen|siebzehn, eighteen|achtzehn, nineteen|neunzehn"
)
_TENS = glossary(
    "twenty|zwanzig, thirty|dreißig, forty|vierzig, fifty|fünfzig, sixty|sechzig, seventy|siebzig, eighty|achtzig, "
    "ninety|neunzig"
)


def cardinal(value: int) -> Words:
    """A cardinal below a hundred: German says the units before the tens."""
    if value < 20:
        return _UNITS[value - 1]
    ten, zehn = _TENS[value // 10 - 2]
    if value % 10 == 0:
        return ten, zehn
    unit, einer = _UNITS[value % 10 - 1]
    return f"{ten}-{unit}", f"{einer}und{zehn}"


class Phrase(NamedTuple):
    """A subject or an object; German has nominative, accusative and dative. `who` is the English pronoun for it."""

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
        english = "who" if self.kind in PEOPLE else "that"
        return self._replace(english=english, german=(nominative, accusative, dative), determiner="the")


def _pronoun(line: str) -> Phrase:
    english, nominative, accusative, dative, person = line.split()
    return Phrase(
        english,
        (nominative, accusative, dative),
        int(person),
        plural=english in ("we", "they"),
        who=english,
        kind="pronouns",
        noun=english,
    )


_PRONOUNS = (
    "I ich mich mir 1",
    "you du dich dir 2",
    "he er ihn ihm 3",
    "she sie sie ihr 3",
    "we wir uns uns 1",
    "they sie sie ihnen 3",
)
PRONOUNS = {line.split()[0]: _pronoun(line) for line in _PRONOUNS}
NAMED = [Phrase(name, (name, name, name), who=who, kind="names", noun=name) for name, who in NAMES.items()]
IT = Phrase("it", ("es", "es", ""))
WHO_PHRASE = Phrase("who", ("wer", "wen", "wem"), kind="adult", noun="who")
WHAT_PHRASE = Phrase("what", ("was", "was", ""), noun="what")
OWN = {"I": "my", "you": "your", "he": "his", "she": "her", "we": "our", "they": "their"}


def nominal(
    noun: Noun, determiner: str, adjectives: Sequence[str] = (), plural: bool = False, count: int = 0
) -> Phrase:
    """A noun with what stands before it; "not a" negates an indefinite object."""
    several = cardinal(count) if count else NOTHING
    english_words = [_english_article(noun, determiner, plural), several[0], *adjectives]
    english = " ".join(filter(None, [*english_words, noun.english_plural if plural else noun.english]))
    pronoun = "they" if plural else {"m": "he", "f": "she", "n": ""}[noun.gender]
    return Phrase(
        re.sub(r"\ba (?=[aeiou])", "an ", english),
        _german_cases(noun, determiner, adjectives, plural, several[1]),
        plural=plural,
        gender=noun.gender,
        who=pronoun if noun.kind in PEOPLE else "",
        kind=noun.kind,
        noun=noun.name,
        determiner=determiner,
    )


def _english_article(noun: Noun, determiner: str, plural: bool) -> str:
    if determiner == "a":
        return "" if plural else "a"
    if determiner == "not a":
        return "a" if noun.german and noun.english_plural and not plural else "any"
    return "these" if determiner == "this" and plural else determiner


def _german_cases(
    noun: Noun, determiner: str, adjectives: Sequence[str], plural: bool, cardinal: str
) -> tuple[str, str, str]:
    """Nominative, accusative and dative."""
    stem, endings, declension = ARTICLES[determiner]
    gender = "p" if plural else noun.gender
    cases = []
    for case in range(3):
        head = noun.german_plural if plural or (noun.weak and case) else noun.german
        if plural and case == 2 and head[-1] not in "ns":
            head += "n"
        described = [ADJECTIVES[adjective].stem + declension[gender][case] for adjective in adjectives]
        cases.append(" ".join(filter(None, [stem + endings[gender][case], cardinal, *described, head])))
    return cases[0], cases[1], cases[2]
