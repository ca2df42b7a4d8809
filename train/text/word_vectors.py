"""Vectors of words from files.

Files are those of GloVe (.txt: a word and its numbers a line), fastText and word2vec (.vec: the same behind a line with
the counts of words and numbers; .bin: a word, a space, and its float32 numbers).
"""

import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import final

import numpy as np

from train import UserError

# What a file of word vectors is called.
ENDINGS = (".vec", ".txt", ".bin")

# Characters of the longest word: a .bin without a space before it is none.
_MAX_WORD = 1000


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
