"""ListOps (Nangia & Bowman 2018), as the Long Range Arena has it (Tay et al. 2021): nested operations on digits.

    [MAX 2 9 [MIN 4 7 ] 0 ]     is 9

An expression is a digit with probability 3/4, and always at the tenth level; else an operator of 2 to 10 expressions:
MIN, MAX, MED (the median; of two middle values their mean, rounded down) or SM (the sum modulo 10). A bracket with its
operator, a closing bracket and a digit count 1 each in the length of an expression.
"""

import random

OPERATORS = ("MIN", "MAX", "MED", "SM")
_P_DIGIT, _MAX_DEPTH, _MAX_ARGUMENTS = 0.75, 10, 10


class _TooLongError(Exception):
    """An expression that would be drawn again."""


def draw(low: int, high: int, rng: random.Random) -> dict[str, str]:
    """A row: the text of an expression of length `low` to `high`, drawn again until it has one, and its value."""
    while True:
        words: list[str] = []
        try:
            value = _operation(words, 1, high, rng)
        except _TooLongError:
            continue
        if len(words) >= low:
            return {"text": " ".join(words), "label": str(value)}


def _expression(words: list[str], depth: int, high: int, rng: random.Random) -> int:
    """Appends the words of an expression, and returns its value."""
    if depth < _MAX_DEPTH and rng.random() >= _P_DIGIT:
        return _operation(words, depth, high, rng)
    digit = rng.randrange(10)
    words.append(str(digit))
    return digit


def _operation(words: list[str], depth: int, high: int, rng: random.Random) -> int:
    """Appends an operator and its expressions, and returns their value. Raises _TooLongError as soon as they are longer
    than `high`."""
    operator = rng.choice(OPERATORS)
    words.append(f"[{operator}")
    values = []
    for _ in range(rng.randint(2, _MAX_ARGUMENTS)):
        values.append(_expression(words, depth + 1, high, rng))
        if len(words) >= high:
            raise _TooLongError
    words.append("]")
    return value_of(operator, values)


def value_of(operator: str, values: list[int]) -> int:
    """The value of an operator of digits."""
    if operator == "SM":
        return sum(values) % 10
    ranked = sorted(values)
    middle = len(ranked) // 2
    places = {"MIN": [0], "MAX": [-1], "MED": [middle] if len(ranked) % 2 else [middle - 1, middle]}[operator]
    return sum(ranked[place] for place in places) // len(places)
