"""Text infilling and the permutation of sentences (BART: Lewis et al. 2020, section 2.2; the order of its published
code: sentences first, then spans, then insertions).

Spans start at different tokens, drawn at random, and have lengths of a Poisson law, together `rate * n` tokens of n,
rounded up. One mask stands for each of them; where a span starts inside of another, it has none. A mask that stands
for no token is inserted for each span of length 0:

    text      the cat sat . it ran off .
    inputs    it [MASK] . the [MASK] cat [MASK]
    targets   the cat sat . it ran off .
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from train.data.tokens import DocumentTokens
from train.tasks.denoise.noise import Corrupted
from train.tasks.denoise.rows import NoisedTexts, PieceRows
from train.text.tokenize import SequenceTemplate

# Spans that are drawn beyond those that the mean length asks for: so many of length 0 in a row do not occur.
_SPARE = 40


class Infilling(NamedTuple):
    """BART's noise.

    rate: share of the tokens that spans have together
    span: mean of the Poisson law of their lengths
    mask: the token that stands for a span
    stops: tokens that end a sentence; none: sentences stay in their order
    """

    rate: float
    span: float
    mask: int
    stops: Sequence[int]


class DrawnSpans(NamedTuple):
    """Spans of texts, int [B,K] each: where one starts, and its length; length 0 behind the last one.

    inserted: masks that stand for no token, int [B]
    """

    starts: np.ndarray
    lengths: np.ndarray
    inserted: np.ndarray


def draw_spans(rng: np.random.Generator, sizes: np.ndarray, noise: Infilling, width: int) -> DrawnSpans:
    """Spans of texts of `sizes` [B] tokens, at most `width`; what is drawn depends on B and `width` alone."""
    count = int(np.ceil(noise.rate * width / max(1.0, noise.span))) * 2 + _SPARE
    drawn, priority = rng.poisson(noise.span, (len(sizes), count)), rng.random((len(sizes), width))
    totals = np.ceil(noise.rate * sizes).astype(np.int64)[:, None]
    before = np.cumsum(drawn, axis=1) - drawn
    is_used = before < totals
    lengths = np.where(is_used, np.minimum(drawn, totals - before), 0)
    priority[np.arange(width) >= sizes[:, None]] = 2
    order = np.argsort(priority, axis=1, kind="stable")
    has_tokens = lengths > 0
    rank = np.minimum(np.cumsum(has_tokens, axis=1) - 1, width - 1)
    starts = np.where(has_tokens, np.take_along_axis(order, np.maximum(rank, 0), axis=1), 0)
    return DrawnSpans(starts, lengths, (is_used & ~has_tokens).sum(1))


def infill(ids: np.ndarray, valid: np.ndarray, spans: DrawnSpans, mask: int) -> Corrupted:
    """Texts [B,W] without the tokens of the spans, with a mask in place of each span."""
    width = ids.shape[1]
    rows = np.arange(len(ids))[:, None]
    steps = np.zeros((len(ids), width + 1), np.int64)
    np.add.at(steps, (rows, np.minimum(spans.starts + 1, width)), spans.lengths > 0)
    np.add.at(steps, (rows, np.minimum(spans.starts + spans.lengths, width)), -(spans.lengths > 0).astype(np.int64))
    is_inner = np.cumsum(steps, axis=1)[:, :width] > 0
    begins = np.zeros(ids.shape, bool)
    begins[np.broadcast_to(rows, spans.starts.shape)[spans.lengths > 0], spans.starts[spans.lengths > 0]] = True
    kept = valid & ~is_inner
    return Corrupted(np.where(begins, mask, ids), kept, begins & kept)


def insert(side: Corrupted, order: np.ndarray, counts: np.ndarray, mask: int, limit: int) -> Corrupted:
    """Texts [B,W] with `counts` [B] more masks, of which as many are left out as have no place in `limit` tokens.

    order: [B, W + K] in [0, 1): the places of the new text with the smallest values have the masks
    """
    sizes = side.kept.sum(1)
    counts = np.minimum(counts, np.maximum(limit - sizes, 0))
    place = np.arange(order.shape[1])
    is_token = place < (sizes + counts)[:, None]
    rank = np.argsort(np.argsort(np.where(is_token, order, 2), axis=1, kind="stable"), axis=1, kind="stable")
    is_new = is_token & (rank < counts[:, None])
    is_old = is_token & ~is_new
    ids, marks = np.full(order.shape, mask, np.int64), is_new.copy()
    ids[is_old], marks[is_old] = side.ids[side.kept], side.is_sentinel[side.kept]
    return Corrupted(ids, is_token, marks)


def permuted(ids: np.ndarray, valid: np.ndarray, order: np.ndarray, stops: Sequence[int]) -> np.ndarray:
    """Texts [B,W] with their sentences in another order: by the values [B,W] in [0, 1) at their first tokens.

    A sentence ends behind a token of `stops` that no other one precedes.
    """
    is_stop = np.isin(ids, stops) & valid
    ends = is_stop & ~np.pad(is_stop[:, :-1], [(0, 0), (1, 0)])
    begins = np.pad(ends[:, :-1], [(0, 0), (1, 0)])
    first = np.maximum.accumulate(np.where(begins, np.arange(ids.shape[1]), 0), axis=1)
    value = np.where(valid, np.take_along_axis(order, first, axis=1), 2)
    return np.take_along_axis(ids, np.argsort(value, axis=1, kind="stable"), axis=1)


class InfillingRows(PieceRows):
    """Rows of as many tokens as fill the decoder, which writes all of them; the encoder reads them with noise."""

    def __init__(
        self, text: DocumentTokens, noise: Infilling, template: SequenceTemplate, length: int, jitter: bool = False
    ):
        self.noise, specials = noise, max(len(prefix) + len(suffix) for prefix, suffix in template.frames)
        super().__init__(text, template, max(length - specials, 1), length, length, jitter)
        self.padding = noise.rate * (1 - 1 / max(noise.span, 1.0)) / 2

    def _sides(self, rows: np.ndarray, rng: np.random.Generator) -> NoisedTexts:
        shifts, offsets = rng.random((2, len(rows)))
        ids, valid = self._read(rows, np.full(len(rows), self.width), shifts, offsets)
        sentences = rng.random(ids.shape)
        spans = draw_spans(rng, valid.sum(1), self.noise, self.width)
        places = rng.random((len(rows), self.width))
        source = permuted(ids, valid, sentences, self.noise.stops) if len(self.noise.stops) else ids
        filled = infill(source, valid, spans, self.noise.mask)
        inputs = insert(filled, places, spans.inserted, self.noise.mask, self.width)
        return NoisedTexts(inputs, Corrupted(ids, valid, np.zeros_like(valid)), np.asarray(valid.any(1)))
