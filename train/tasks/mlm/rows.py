"""Rows of packed text, or of sentence pairs, masked anew for every batch.

With --task.nsp a row is `[CLS] A [SEP] B [SEP]` (Devlin et al. 2018, section 3.1, task 2). A is a span of sentences of
a document. In half of the rows B is the sentences after A, else sentences of another document. Types are 0 for A and
1 for B.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from train import UserError
from train.data import packing
from train.data.pairs import join, split
from train.data.tokens import DocumentTokens, TokenizedTexts
from train.tasks.mlm.masking import Masker


def sentences(documents: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Sentences of documents, and the document of each, as `split` returns them.

    Raises UserError where no document has two sentences.
    """
    texts, document = split(documents)
    if not (document[1:] == document[:-1]).any():
        raise UserError(
            "--task.nsp=true needs documents of two sentences or more, and each document here has one; leave it out, "
            "or say what a document is with --data.split"
        )
    return texts, document


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

    def __init__(self, text: TokenizedTexts, document: np.ndarray, length: int, masker: Masker):
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
        """The fields of `train.tasks.mlm.task` with --task.nsp; segments are 1 for a token and 0 for padding."""
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


class MaskedRows:
    """Rows of packed text, masked anew for every batch."""

    buckets, independent_rows = None, True

    def __init__(self, text: DocumentTokens, length: int, pack: bool, masker: Masker):
        self.text, self.masker, self.plan = text, masker, packing.plan(text, length, pack)
        self.tokens, self.padding = text.num_tokens, self.plan.padding

    def __len__(self):
        return self.plan.rows

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every document."""
        return self.text.split()

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields at the top of this file."""
        return self.masker(rng, packing.fill(self.text, self.plan, rows, self.masker.specials))
