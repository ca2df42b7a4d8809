"""Errors of written words."""

from collections.abc import Sequence


def distance(words: Sequence[str], reference: Sequence[str]) -> int:
    """The least number of words to insert, to leave out and to replace that makes one of the other (Levenshtein
    1966)."""
    row = list(range(len(reference) + 1))
    for place, word in enumerate(words, 1):
        diagonal, row[0] = row[0], place
        for column, target in enumerate(reference, 1):
            diagonal, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, diagonal + (word != target))
    return row[-1]


def word_errors(texts: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """`wer`: errors over the words of all references; `exact`: the share of texts without an error."""
    pairs = [(text.split(), reference.split()) for text, reference in zip(texts, references, strict=True)]
    errors = [distance(*pair) for pair in pairs]
    words = sum(len(reference) for _, reference in pairs)
    return {
        "wer": sum(errors) / max(1, words),
        "exact": sum(not error for error in errors) / max(1, len(errors)),
    }
