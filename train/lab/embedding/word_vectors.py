"""Vectors of words from files, and texts as their means: bags of words, and smooth inverse frequency.

Files are those of GloVe (.txt: a word and its numbers a line), fastText and word2vec (.vec: the same behind a line with
the counts of words and numbers; .bin: a word, a space, and its float32 numbers).
"""

import mmap
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final

import numpy as np

from train import UserError

# What a file of word vectors is called.
ENDINGS = (".vec", ".txt", ".bin")

# Characters of the longest word: a .bin without a space before it is none.
_MAX_WORD = 1000

# The parameter a of weights a / (a + p), and the sample that p is estimated on (Arora et al. 2017, section 3).
SMOOTHING = 1e-3


@final
class WordVectors:
    """The vectors in a file, read when they are asked for: `vectors[word]` -> float32 [D], or None."""

    def __init__(self, path: str):
        self.path = Path(path)
        if self.path.suffix not in ENDINGS:
            raise UserError(f"{path} must be a .vec or .txt with a word and its numbers a line, or word2vec's .bin")
        if not self.path.is_file():
            raise UserError(f"{path} does not exist; name a file of word vectors")
        if not self.path.stat().st_size:
            raise UserError(f"{path} is empty; fetch it again")
        with self.path.open("rb") as file:
            self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.places: dict[bytes, tuple[int, int]] = {}
        self.size = 0
        for word, start, end in self._binary() if self.path.suffix == ".bin" else self._lines():
            self.places.setdefault(word, (start, end))
        if not self.places or not self.size:
            raise UserError(f"{self.path} holds no word and its numbers; fetch it again")
        self.read: dict[str, np.ndarray | None] = {}

    def __getitem__(self, word: str) -> np.ndarray | None:
        if word not in self.read:
            self.read[word] = self._vector(word)
        return self.read[word]

    def _vector(self, word: str) -> np.ndarray | None:
        place = self.places.get(word.encode())
        if place is None:
            return None
        data = self.content[slice(*place)]
        try:
            values = np.frombuffer(data, "<f4") if self.path.suffix == ".bin" else np.array(data.split(), np.float32)
        except ValueError as error:
            raise UserError(
                f"{self.path}: the vector of {word!r} is not made of numbers ({error}); repair it"
            ) from error
        if len(values) != self.size:
            raise UserError(f"{self.path}: {word!r} has {len(values)} numbers, and other words {self.size}; repair it")
        if not np.isfinite(values).all():
            raise UserError(f"{self.path}: the vector of {word!r} is not finite; repair it")
        return values

    def _counts(self) -> tuple[int, int] | None:
        """The counts of words and of numbers in the first line, if it has them."""
        header = re.fullmatch(rb"\s*([0-9]{1,12})\s+([0-9]{1,12})\s*", self.content[: self.content.find(b"\n") + 1])
        return (int(header[1]), int(header[2])) if header else None

    def _lines(self) -> Iterator[tuple[bytes, int, int]]:
        """Every word, and where its numbers start and end."""
        start = self.content.find(b"\n") + 1 if self._counts() else 0
        while start < len(self.content):
            end = self.content.find(b"\n", start)
            end = len(self.content) if end < 0 else end
            space = self.content.find(b" ", start, end)
            if space > start:
                self.size = self.size or len(self.content[space:end].split())
                yield self.content[start:space], space, end
            start = end + 1

    def _binary(self) -> Iterator[tuple[bytes, int, int]]:
        """Every word, and where its numbers start and end."""
        start = self.content.find(b"\n") + 1
        counts = self._counts()
        if counts is None:
            raise UserError(
                f"{self.path} does not begin with the counts of words and numbers; it is no .bin of word2vec"
            )
        count, self.size = counts
        for index in range(count):
            space = self.content.find(b" ", start, start + _MAX_WORD)
            end = space + 1 + 4 * self.size
            if space < 0 or end > len(self.content):
                raise UserError(f"{self.path} ends at word {index + 1:,} of {count:,}; fetch it again")
            yield self.content[start:space].lstrip(b"\n"), space + 1, end
            start = end


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
