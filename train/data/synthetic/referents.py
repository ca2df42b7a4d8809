"""Sentences with a pronoun and two nouns that it may mean; the last word says which (Levesque et al. 2012).

    the animal didn't cross the street because it was too tired     the animal
    the animal didn't cross the street because it was too wide      the street

Who fails is too slow or too weak, and what is not caught or lifted too fast or too heavy. Both nouns may do and suffer
the same; voice, and what stands before and between them, change their places. So a reader must know which noun a
continuation names, what it does in the sentence, and what the last word says of that.

A fifth of the sentences are in passive voice, 0.7 of the pronouns mean who fails, and there are four nouns that may be
either: with ten, a small model knew the first sentence above alone (docs/guide/choice.md).
"""

import random

# A verb, its participle, words for who fails, and for what is too much for them.
_VERBS = """
catch, caught, slow tired lazy late, fast quick far early
lift, lifted, weak tired small thin, heavy large wet wide
follow, followed, slow old tired lost, fast quick far early
reach, reached, small slow tired short, high far fast late
"""
VERBS = tuple(
    (verb, participle, tuple(active.split()), tuple(passive.split()))
    for verb, participle, active, passive in (line.split(", ") for line in _VERBS.strip().split("\n"))
)

# Those of the first sentence above, and nouns that are either.
CROSSING = ("cross", "crossed", ("tired", "lazy", "scared", "slow"), ("wide", "busy", "icy", "long"))
CROSSED = ("street", "bridge", "river", "field")
NOUNS = ("animal", "dog", "robot", "horse")

# The shares of active sentences, and of pronouns that mean who fails.
ACTIVE, FAILS = 0.8, 0.7

_OPENINGS = ("", "yesterday ", "in the morning ", "after the long rain ", "as we all know ")
_BETWEEN = ("", "", "old ", "big ", "green ")


def draw(low: int, high: int, rng: random.Random) -> dict[str, object]:
    """A row: a sentence, two nouns in random order, and the place of the one that the pronoun means.

    Lengths count the words before the sentence begins, from none to `high`.
    """
    is_crossing = rng.random() < 0.3
    verb, participle, of_subject, of_object = CROSSING if is_crossing else rng.choice(VERBS)
    subject = rng.choice(NOUNS)
    target = rng.choice(CROSSED if is_crossing else [noun for noun in NOUNS if noun != subject])
    means_subject = rng.random() < FAILS
    reason = rng.choice(of_subject if means_subject else of_object)
    first, second = rng.choice(_BETWEEN), rng.choice(_BETWEEN)
    if rng.random() < ACTIVE:
        clause = f"the {first}{subject} didn't {verb} the {second}{target}"
    else:
        clause = f"the {second}{target} wasn't {participle} by the {first}{subject}"
    opening = rng.choice([words for words in _OPENINGS if low <= len(words.split()) <= high])
    choices = [f"the {subject}", f"the {target}"]
    swapped = rng.random() < 0.5
    return {
        "text": f"{opening}{clause} because it was too {reason}",
        "choices": choices[::-1] if swapped else choices,
        "label": int(means_subject == swapped),
    }
