"""How many built-in questions about pictures the best guess from the picture alone answers.

    python tests/lab/picture_alone.py

Weighs each answer by how often the questions of `train.images.questions` come with the shapes of a picture, by Bayes'
rule, and prints the share that the heaviest answer should have, and the share in which it is right.
"""

import collections
import math
import random

from train.images import questions, scenes
from train.images.drawings import RELATIONS

KINDS = questions._ALL
SIDES = [*questions._OPPOSITES]
TRIES = 4000  # pairs of shapes that tell how often they stand as a relation says


def orders(kinds):
    """In how many orders these colours and forms can be drawn."""
    return math.factorial(len(kinds)) / math.prod(math.factorial(n) for n in collections.Counter(kinds).values())


def stands(answer, named, relation):
    """Whether the first shape is where the relation says, as `questions._beside` asks."""
    along, across = answer.x - named.x, answer.y - named.y
    if relation in ("above", "below"):
        along, across = across, along
    return abs(along) >= 2 * abs(across) and (along < 0) == (relation in RELATIONS)


def frequencies():
    """How often two shapes stand in each relation."""
    rng, hits = random.Random(1), collections.Counter()
    for _ in range(TRIES):
        pair = scenes.arranged(rng.choices(KINDS, k=2), rng)
        hits.update(relation for relation in SIDES if pair and stands(*pair, relation))
    return {relation: hits[relation] / TRIES for relation in SIDES}


def weights(shapes, frequency):
    """Answers to questions that may come with these shapes, with their probability up to a factor."""
    kinds, answers = [(shape.colour, shape.shape) for shape in shapes], collections.Counter()
    for wanted in KINDS:
        rest = [kind for kind in kinds if kind != wanted]
        count = len(kinds) - len(rest)
        lower, upper = max(1 - count, 0), 3 - count
        if lower <= len(rest) <= upper:
            chance = orders(rest) / 23 ** len(rest) / (upper - lower + 1)
            answers[str(count)] += chance / len(KINDS) / 4
    for place, (colour, form) in enumerate(kinds):
        rest = kinds[:place] + kinds[place + 1 :]
        if form not in [shape for _, shape in rest]:
            answers[colour] += orders(rest) / 18 ** len(rest) / len(KINDS) / 3
    for answer, named in (shapes, shapes[::-1]) if len(shapes) == 2 else ():
        for relation in SIDES:
            if stands(answer, named, relation):
                answers[answer.shape] += 1 / len(KINDS) ** 2 / len(SIDES) / frequency[relation]
    return answers


if __name__ == "__main__":
    rows, frequency = [row for row in questions.drawn().valid if not row["withheld"]], frequencies()
    guesses = [(row["label"], weights(row["image"].shapes, frequency)) for row in rows]
    share = sum(max(answers.values()) / sum(answers.values()) for _, answers in guesses) / len(rows)
    right = sum(max(answers, key=answers.get) == label for label, answers in guesses) / len(rows)
    print(f"of {len(rows)} questions {share:.3f} should be answered by the best guess, and {right:.3f} are")
