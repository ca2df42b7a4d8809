"""Texts of examples with one rule, which is drawn for each text and never said (Brown et al. 2020, section 2; Garg et
al. 2022): who has read some examples can answer the next one.

    7 3 = 10 ; 2 6 = 8 ;            two digits: their sum, difference, product, or the larger one
    4 = 13 ; 6 = 19 ;               linear regression: y = 3 x + 1
    clour = colour ; cnetre = ...   spelling corrections, British or American
    dog = rimo ; cat = tasu ;       words of an invented language, a new one in each text

What follows "=", up to ";", is what counts.
"""

import operator
import random
from collections.abc import Callable

# British and American spellings.
_WORDS = (
    "colour color, honour honor, favour favor, harbour harbor, rumour rumor, vapour vapor, armour armor, "
    "flavour flavor, neighbour neighbor, centre center, theatre theater, metre meter, litre liter, fibre fiber, "
    "defence defense, offence offense, analyse analyze, organise organize, realise realize, travelled traveled, "
    "cancelled canceled, catalogue catalog, dialogue dialog, programme program"
)
SPELLINGS = tuple((pair.split()[0], pair.split()[1]) for pair in _WORDS.split(", "))

# Of an invented language a text knows so many words, and examples repeat them.
VOCABULARY = 4
NOUNS = ("dog", "cat", "bird", "fish", "tree", "house", "river", "stone", "bread", "king")
_SYLLABLES = ("ri", "mo", "ta", "su", "ke", "lu", "na", "po")
INVENTED = tuple(first + last for first in _SYLLABLES for last in _SYLLABLES)

OPERATIONS: tuple[Callable[[int, int], int], ...] = (operator.add, lambda a, b: abs(a - b), operator.mul, max)
SLOPES, OFFSETS = range(1, 5), range(10)

# The question and the answer of a new example.
Rule = Callable[[random.Random], tuple[str, str]]


def draw(low: int, high: int, rng: random.Random) -> dict[str, str]:
    """A row with `low` to `high` examples of a rule."""
    rule = rng.choice((_arithmetic, regression, _spelling, translation))(rng)
    examples = [rule(rng) for _ in range(rng.randint(low, high))]
    return {"text": " ".join(f"{question} = {answer} ;" for question, answer in examples)}


def _arithmetic(rng: random.Random) -> Rule:
    """An operation on two digits."""
    operation = rng.choice(OPERATIONS)

    def example(rng: random.Random) -> tuple[str, str]:
        a, b = rng.randrange(10), rng.randrange(10)
        return f"{a} {b}", str(operation(a, b))

    return example


def regression(rng: random.Random) -> Rule:
    """A line."""
    slope, offset = rng.choice(SLOPES), rng.choice(OFFSETS)

    def example(rng: random.Random) -> tuple[str, str]:
        x = rng.randrange(10)
        return str(x), str(slope * x + offset)

    return example


def _spelling(rng: random.Random) -> Rule:
    """A side of the ocean: of a word with two neighbours exchanged, its spelling there."""
    side = rng.randrange(2)

    def example(rng: random.Random) -> tuple[str, str]:
        word = rng.choice(SPELLINGS)[0]
        place = rng.choice([place for place in range(1, len(word) - 1) if word[place] != word[place + 1]])
        misspelled = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
        return misspelled, dict(SPELLINGS)[word] if side else word

    return example


def translation(rng: random.Random) -> Rule:
    """A dictionary."""
    nouns = rng.sample(NOUNS, VOCABULARY)
    language = dict(zip(nouns, rng.sample(INVENTED, VOCABULARY), strict=True))

    def example(rng: random.Random) -> tuple[str, str]:
        noun = rng.choice(nouns)
        return noun, language[noun]

    return example
