"""Texts that are easy to complete for a model that remembers, and only for it.

    copy w q e a = w q e a                       the second half repeats the first one (Kitaev et al. 2020, section 5)
    recall k 17 b 52 x 40 ? x = 40 ; k = 17 ;    values of keys that stood before (Arora et al. 2024)

Letters, keys and values are drawn uniformly. What follows "=", up to ";" or the end, is what counts.
"""

import random
import string
from itertools import product

_LETTERS = string.ascii_lowercase
_PAIRS = ["".join(pair) for pair in product(_LETTERS, repeat=2)]
_VALUES = [str(value) for value in range(10, 100)]

# Keys that are asked for, at most; pairs that a text may have, since its keys differ.
QUESTIONS, MAX_PAIRS = 8, len(_PAIRS)


def draw_copy(low: int, high: int, rng: random.Random) -> dict[str, str]:
    """A row with `low` to `high` random letters, twice."""
    letters = " ".join(rng.choices(_LETTERS, k=rng.randint(low, high)))
    return {"text": f"copy {letters} = {letters}"}


def draw_recall(low: int, high: int, rng: random.Random) -> dict[str, str]:
    """A row with `low` to `high` pairs of a key and a value, and questions for some of them, in random order."""
    count = rng.randint(low, high)
    keys = rng.sample(_LETTERS if count <= len(_LETTERS) else _PAIRS, count)
    values = dict(zip(keys, rng.choices(_VALUES, k=count), strict=True))
    pairs = " ".join(f"{key} {value}" for key, value in values.items())
    questions = " ".join(f"{key} = {values[key]} ;" for key in rng.sample(keys, min(count, QUESTIONS)))
    return {"text": f"recall {pairs} ? {questions}"}
