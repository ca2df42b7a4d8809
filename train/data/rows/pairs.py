"""Sentence pairs for next-sentence prediction (Devlin et al. 2018, section 3.1, task 2).

A row is `[CLS] A [SEP] B [SEP]`. A is a span of sentences of a document. In half of the rows B is the sentences after
A, else sentences of another document. Types are 0 for A and 1 for B.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from train import UserError
from train.data.masking import Masker
from train.data.tokens import Tokens
from train.text.tokenize import SpecialTokens

# A sentence ends at a stop before a capital, a digit or a line break, and at an empty line.
_END = re.compile(r"""[.!?]["')\]\u201d\u2019]*(?:\s+(?=["'(\[\u201c\u2018]*[A-Z0-9])|[ \t]*\n)|\n\s*\n""")


def sentences(documents: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """The same as `split`. Raises UserError where no document has two sentences."""
    texts, document = split(documents)
    if not (document[1:] == document[:-1]).any():
        raise UserError(
            "--task.nsp=true needs documents of two sentences or more, and each document here has one; leave it out, "
            "or say what a document is with --data.split"
        )
    return texts, document


def split(documents: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """All sentences, and the document of each, int [N]."""
    by_document = [_sentences(document) for document in documents]
    document = np.repeat(np.arange(len(by_document)), [len(group) for group in by_document])
    return [sentence for group in by_document for sentence in group], document


def _sentences(document: str) -> list[str]:
    places = [0, *(end.end() for end in _END.finditer(document)), len(document)]
    return [part for start, end in itertools.pairwise(places) if (part := document[start:end]).strip()]


class SentenceSpans(NamedTuple):
    """Spans of two sentences or more of one document: span r is sentences firsts[r] to lasts[r], the last excluded."""

    firsts: np.ndarray
    lasts: np.ndarray


def plan(lengths: np.ndarray, document: np.ndarray, max_tokens: int) -> SentenceSpans:
    """Cuts documents into spans of at least two sentences, each closed as soon as it has `max_tokens` tokens."""
    firsts, lasts = [], []
    for document_sentences in np.split(np.arange(len(document)), np.flatnonzero(np.diff(document)) + 1):
        first, total = document_sentences[0], 0
        for sentence in document_sentences:
            total += lengths[sentence]
            if total >= max_tokens and sentence > first:
                firsts.append(first)
                lasts.append(sentence + 1)
                first, total = sentence + 1, 0
        if document_sentences[-1] > first:
            firsts.append(first)
            lasts.append(document_sentences[-1] + 1)
    return SentenceSpans(np.array(firsts, np.int64), np.array(lasts, np.int64))


class SentencePairs:
    """Rows of sentence pairs, paired and masked anew for every batch."""

    buckets, independent_rows = None, False  # the rows of a batch draw from one random stream, in order

    def __init__(self, text: Tokens, document: np.ndarray, length: int, masker: Masker):
        self.text, self.document, self.length, self.masker = text, document, length, masker
        self.plan = plan(text.lengths, document, length - 3)
        self.tokens = len(text.ids)
        sizes = text.starts[self.plan.lasts] - text.starts[self.plan.firsts]
        self.padding = float(1 - (np.minimum(sizes, length - 3) + 3).mean() / length) if len(sizes) else 0.0

    def __len__(self):
        return len(self.plan.firsts)

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every sentence."""
        return self.text.split()

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.mlm` with --task.nsp; segments are 1 for a token and 0 for padding."""
        shape, specials = (len(rows), self.length), self.masker.specials
        fields = {name: np.zeros(shape, np.int32) for name in ("tokens", "segments", "positions", "types")}
        fields["tokens"][:] = specials.pad
        fields["positions"][:] = np.arange(self.length)
        weights = np.where(rows < 0, 0, 1).astype(np.float32)
        is_random = (rng.random(len(rows)) < 0.5).astype(np.int32)
        for b, row in enumerate(rows):
            if row < 0:
                continue
            ids, start_of_b = join(self._pair(row, is_random[b], rng), self.length, specials)
            fields["tokens"][b, : len(ids)] = ids
            fields["segments"][b, : len(ids)] = 1
            fields["types"][b, start_of_b : len(ids)] = 1
        return self.masker(rng, fields) | {"next": is_random, "pairs": weights}

    def _pair(self, row: int, is_random: bool, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of A and B."""
        first, last = self.plan.firsts[row], self.plan.lasts[row]
        middle = rng.integers(first + 1, last)
        if not is_random:
            return self._span(first, middle), self._span(middle, last)
        start = self._random_sentence(first, last, rng)
        end = np.searchsorted(self.document, self.document[start], "right")
        return self._span(first, middle), self._span(start, min(start + last - middle, end))

    def _span(self, first: int, last: int) -> np.ndarray:
        return self.text.ids[self.text.starts[first] : self.text.starts[last]]

    def _random_sentence(self, first: int, last: int, rng: np.random.Generator) -> int:
        """A sentence of another document; of the only document, a sentence outside the span."""
        start, end = np.searchsorted(self.document, [self.document[first], self.document[first] + 1])
        if end - start == len(self.document):
            start, end = first, last
        candidates = len(self.document) - (end - start)
        if not candidates:
            return 0
        place = rng.integers(candidates)
        return place if place < start else place + (end - start)


def fill(fields: Mapping[str, np.ndarray], place: tuple[int, ...], ids: np.ndarray, second: int):
    """Writes a row of tokens into the fields tokens, types and valid [...,T]; its second text starts at `second`."""
    fields["tokens"][place][: len(ids)] = ids
    fields["valid"][place][: len(ids)] = 1
    fields["types"][place][second : len(ids)] = 1


def join(
    texts: Sequence[np.ndarray], length: int, specials: SpecialTokens, separators: int = 1
) -> tuple[np.ndarray, int]:
    """`[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` of at most `length` tokens, int32, and where B starts.

    `separators` [SEP] stand between A and B. If the pair is too long, the longer text loses its end.
    """
    if len(texts) == 1:
        row = np.concatenate([[specials.cls], texts[0][: length - 2], [specials.sep]]).astype(np.int32)
        return row, len(row)
    a, b = texts
    max_tokens = length - 2 - separators
    a = a[: max(max_tokens - len(b), max_tokens - max_tokens // 2)]
    b = b[: max_tokens - len(a)]
    row = np.concatenate([[specials.cls], a, [specials.sep] * separators, b, [specials.sep]]).astype(np.int32)
    return row, len(a) + 1 + separators
