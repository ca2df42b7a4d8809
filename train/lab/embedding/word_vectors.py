"""Texts as means of the vectors of their words: bags of words, and smooth inverse frequency."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import final

import numpy as np

from train.text.word_vectors import WordVectors

# The parameter a of weights a / (a + p), and the sample that p is estimated on (Arora et al. 2017, section 3).
SMOOTHING = 1e-3


@final
class BagOfWords:
    """`encoder(texts)` -> float32 [N,D]: the mean of the vectors of a text's words; 0 where none is in the file.

    Words are what spaces part. One that is not in the file is looked up in lower case, then in its parts of letters,
    digits and marks.

    weighted: weights a / (a + p(word)) in place of equal ones, and the first component of all texts removed (Arora et
        al. 2017, algorithm 1). p is the share of the word in the texts.
    """

    def __init__(self, path: str, weighted: bool = False):
        self.vectors, self.weighted = WordVectors(path), weighted

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """One vector of each text."""
        texts_words = [self._words(text) for text in texts]
        counts = Counter(word for words in texts_words for word in words)
        total = max(1, counts.total())
        vectors = np.zeros((len(texts), self.vectors.size), np.float32)
        for row, words in enumerate(texts_words):
            if not words:
                continue
            values = np.stack([vector for word in words if (vector := self.vectors[word]) is not None])
            if self.weighted:
                shares = np.array([counts[word] / total for word in words])
                values = values * (SMOOTHING / (SMOOTHING + shares))[:, None]
            vectors[row] = values.mean(0)
        return without_first_component(vectors) if self.weighted and len(texts) > 1 else vectors

    def _words(self, text: str) -> list[str]:
        """The words of a text that have a vector."""
        words: list[str] = []
        for word in text.split():
            spellings = ([word], [word.lower()], parts_of(word))
            kept = ([part for part in parts if self.vectors[part] is not None] for parts in spellings)
            words += next((parts for parts in kept if parts), [])
        return words


def parts_of(text: str) -> list[str]:
    """The parts of letters and digits of a text in lower case, and its marks."""
    return re.findall(r"\w+|[^\w\s]", text.lower())


def without_first_component(vectors: np.ndarray) -> np.ndarray:
    """vectors [N,D] -> [N,D], less their projection on the first singular vector of all, which is not centred."""
    _, basis = np.linalg.eigh(vectors.T.astype(np.float64) @ vectors)
    first = basis[:, -1]
    return (vectors - np.outer(vectors @ first, first)).astype(np.float32)
