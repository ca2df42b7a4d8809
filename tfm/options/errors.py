"""What errors say of names and values."""

import difflib
from collections.abc import Iterable


def abbreviate(value: object) -> str:
    """A value as an error shows it."""
    is_short = not isinstance(value, int) or value.bit_length() <= 256  # Python writes no decimals of longer ones
    text = repr(value) if is_short else f"{value:#x}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def suggest(word: str, names: Iterable[str]) -> str:
    """The second half of an "unknown name" sentence: the nearest known name, or all of them."""
    names = list(names)
    suggestion = nearest(word, names)
    return f"; did you mean {suggestion}?" if suggestion else f"; known are {', '.join(names)}"


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The known name nearest to a misspelt one, whatever its case. Of names with little in common, one that begins with
    the same letter."""
    by_lower, word = {name.lower(): name for name in names}, word.lower()
    same_initial = [name for name in by_lower if name[:1] == word[:1]]
    matches = difflib.get_close_matches(word, by_lower, 1) or difflib.get_close_matches(word, same_initial, 1, 0.5)
    return by_lower[matches[0]] if matches else None


def nearest_divisor(size: int, total: int) -> int:
    """The divisor of `total` nearest to `size`."""
    return min((n for n in range(1, total + 1) if total % n == 0), key=lambda n: abs(n - size))
