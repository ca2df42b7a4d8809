"""Sentence pairs for next-sentence prediction (Devlin et al. 2018, section 3.1, task 2).

A row is `[CLS] A [SEP] B [SEP]`, where A is a stretch of sentences of a document, and B in half of the rows the sentences after it, else
sentences of another document. Types are 0 for A and 1 for B.
"""

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from train import UserError
from train.data.masking import Masker
from train.data.tokens import Tokens
from train.text.tokenizer import Specials

# A sentence ends at a stop before a capital, a digit or a line break, and at an empty line.
_END = re.compile(r"""[.!?]["')\]\u201d\u2019]*(?:\s+(?=["'(\[\u201c\u2018]*[A-Z0-9])|[ \t]*\n)|\n\s*\n""")


def sentences(documents: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Every sentence, and the number of its document. Raises UserError where no document has two."""
    found = [_sentences(document) for document in documents]
    if max(map(len, found), default=0) < 2:
        raise UserError(
            "--task.nsp=true needs documents of two sentences or more, and each document here has one; leave it out, or say what a "
            "document is with --data.split"
        )
    return [sentence for document in found for sentence in document], np.repeat(
        np.arange(len(found)), [len(each) for each in found]
    )


def _sentences(document: str) -> list[str]:
    places = [0, *(end.end() for end in _END.finditer(document)), len(document)]
    return [part for start, end in itertools.pairwise(places) if (part := document[start:end]).strip()]


class SentenceSpans(NamedTuple):
    """Stretches of two sentences or more of one document: sentences firsts[r] to lasts[r], the last one left out."""

    firsts: np.ndarray
    lasts: np.ndarray


def plan(lengths: np.ndarray, document: np.ndarray, most: int) -> SentenceSpans:
    """Cuts documents into stretches of at least two sentences that together have about `most` tokens."""
    firsts, lasts = [], []
    for sentence_range in np.split(np.arange(len(document)), np.flatnonzero(np.diff(document)) + 1):
        first, total = sentence_range[0], 0
        for sentence in sentence_range:
            total += lengths[sentence]
            if total >= most and sentence > first:
                firsts.append(first)
                lasts.append(sentence + 1)
                first, total = sentence + 1, 0
        if sentence_range[-1] > first:
            firsts.append(first)
            lasts.append(sentence_range[-1] + 1)
    return SentenceSpans(np.array(firsts, np.int64), np.array(lasts, np.int64))


class SentencePairs:
    """Rows of sentence pairs, paired and masked afresh each time."""

    buckets, independent_rows = None, False  # chance goes through the rows in order

    def __init__(self, text: Tokens, document: np.ndarray, length: int, masker: Masker):
        self.text, self.document, self.length, self.masker = text, document, length, masker
        self.plan = plan(text.lengths, document, length - 3)
        self.tokens = len(text.ids)
        sizes = text.starts[self.plan.lasts] - text.starts[self.plan.firsts]
        self.padding = float(1 - (np.minimum(sizes, length - 3) + 3).mean() / length) if len(sizes) else 0.0

    def __len__(self):
        return len(self.plan.firsts)

    def batch(self, numbers: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """int32 [B,T] tokens, segments (1 for a token, 0 for padding), positions and types; int32 [B] next (0: B follows A, 1: it does
        not); float32 [B] pairs (0 for a row that does not count); and what the masker adds."""
        shape, specials = (len(numbers), self.length), self.masker.specials
        fields = {name: np.zeros(shape, np.int32) for name in ("tokens", "segments", "positions", "types")}
        fields["tokens"][:] = specials.pad
        fields["positions"][:] = np.arange(self.length)
        pairs = np.where(numbers < 0, 0, 1).astype(np.float32)
        random = (rng.random(len(numbers)) < 0.5).astype(np.int32)
        for b, number in enumerate(numbers):
            if number < 0:
                continue
            row, second = join(self._pair(number, random[b], rng), self.length, specials)
            fields["tokens"][b, : len(row)], fields["segments"][b, : len(row)] = row, 1
            fields["types"][b, second : len(row)] = 1
        return self.masker(rng, fields) | {"next": random, "pairs": pairs}

    def _pair(self, number: int, random: bool, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of A and B."""
        first, last = self.plan.firsts[number], self.plan.lasts[number]
        middle = rng.integers(first + 1, last)
        one = self._stretch(first, middle)
        two = self._stretch(middle, last)
        if random:
            begin = self._elsewhere(first, last, rng)
            end = np.searchsorted(self.document, self.document[begin], "right")
            two = self._stretch(begin, min(begin + last - middle, end))
        return one, two

    def _stretch(self, first: int, last: int) -> np.ndarray:
        return self.text.ids[self.text.starts[first] : self.text.starts[last]]

    def _elsewhere(self, first: int, last: int, rng: np.random.Generator) -> int:
        """A sentence of another document; where there is but one document, a sentence outside of the stretch."""
        begin, end = np.searchsorted(self.document, [self.document[first], self.document[first] + 1])
        if end - begin == len(self.document):
            begin, end = first, last
        others = len(self.document) - (end - begin)
        place = rng.integers(others) if others else 0
        return place if place < begin else place + (end - begin) * bool(others)


def join(texts: Sequence[np.ndarray], length: int, specials: Specials, between: int = 1) -> tuple[np.ndarray, int]:
    """`[CLS] A [SEP]`, or of two texts `[CLS] A [SEP] B [SEP]`, of at most `length` tokens; and where B begins; with
    `between` times `[SEP]` there.

    Where they are too long together, the longer one gives way at its end.
    """
    if len(texts) == 1:
        row = np.concatenate([[specials.cls], texts[0][: length - 2], [specials.sep]]).astype(np.int32)
        return row, len(row)
    one, two = texts
    most = length - 2 - between
    one = one[: max(most - len(two), most - most // 2)]
    row = np.concatenate(
        [[specials.cls], one, [specials.sep] * between, two[: most - len(one)], [specials.sep]]
    ).astype(np.int32)
    return row, len(one) + 1 + between
