"""Words of a text with their places, for models that read words."""

import unicodedata
from typing import NamedTuple

# Ideographs of Chinese, each a word to BERT: first and last code points of their blocks.
_IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


class Word(NamedTuple):
    """Characters start to end - 1 of a text."""

    text: str
    start: int
    end: int


def basic_words(text: str) -> list[Word]:
    """The words of a text: it is split at spaces, and every punctuation mark and ideograph is a word of its own.

    Where BERT's basic tokenizer splits (Devlin et al. 2018, tokenization.py); characters stay as they are.
    """
    words: list[Word] = []
    start = 0
    for place, letter in enumerate([*text, " "]):
        alone = _is_punctuation(letter) or _is_ideograph(letter)
        if not (alone or letter.isspace()):
            continue
        if place > start:
            words.append(Word(text[start:place], start, place))
        if alone:
            words.append(Word(letter, place, place + 1))
        start = place + 1
    return words


def joined_words(words: list[str]) -> list[Word]:
    """The places of words in the text that they make with a space between."""
    places: list[Word] = []
    start = 0
    for word in words:
        places.append(Word(word, start, start + len(word)))
        start += len(word) + 1
    return places


def _is_punctuation(letter: str) -> bool:
    """Marks of Unicode, and all of ASCII that is no letter, digit, space or control character."""
    is_symbol = letter.isascii() and letter.isprintable() and not letter.isalnum() and letter != " "
    return is_symbol or unicodedata.category(letter).startswith("P")


def _is_ideograph(letter: str) -> bool:
    return any(first <= ord(letter) <= last for first, last in _IDEOGRAPHS)
