"""Span corruption: which tokens of a text are left out, and what stands for them (Raffel et al. 2020, section 3.1.4).

A text of n tokens has `rate * n` noise tokens in `noise / span` runs, each rounded half to even. Runs of noise and of
the rest take turns, the rest first, so the first token stays and the last is noise. Their lengths are uniform among
all that have these sums. Sentinel j stands for the j-th run:

    text      Thank you for inviting me to your party last week
    inputs    Thank you <extra_id_0> me to your party <extra_id_1>
    targets   <extra_id_0> for inviting <extra_id_1> last week
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from train.tasks.denoise.options import Denoiser


class NoiseCounts(NamedTuple):
    """Of texts of several lengths: noise tokens and the runs that these stand in; int of one shape."""

    noise: np.ndarray
    spans: np.ndarray


def counts_of(lengths: np.ndarray, rate: np.ndarray | float, span: np.ndarray | float) -> NoiseCounts:
    """Noise of texts of `lengths` tokens; none of texts of less than two tokens. There are no more runs than rest."""
    noise = np.clip(np.rint(lengths * rate), 1, np.maximum(lengths - 1, 1)).astype(np.int64)
    spans = np.maximum(np.rint(noise / span), 1).astype(np.int64)
    spans = np.minimum(spans, np.maximum(lengths - noise, 1))
    return NoiseCounts(np.where(lengths >= 2, noise, 0), np.where(lengths >= 2, spans, 0))


class RowSizes(NamedTuple):
    """Tokens of the text of a full row, of its inputs and of its targets, special tokens included; and its runs."""

    text: int
    inputs: int
    targets: int
    spans: int


def row_sizes(denoiser: Denoiser, length: int, specials: int) -> RowSizes:
    """The longest text whose inputs and targets have at most `length` tokens, `specials` around each included."""
    if denoiser.rate is None or denoiser.span is None:
        text = length - specials + 1  # at least one token is on the other side
        return RowSizes(text, length, length, 0)
    texts = np.arange(2, int((length + 2) / min(denoiser.rate, 1 - denoiser.rate)) + 3)
    noise, spans = counts_of(texts, denoiser.rate, denoiser.span)
    inputs, targets = texts - noise + spans + specials, noise + spans + specials
    fits = np.flatnonzero((inputs <= length) & (targets <= length))
    best = int(fits[-1]) if len(fits) else 0
    return RowSizes(*(int(values[best]) for values in (texts, inputs, targets, spans)))


def composition(rng: np.random.Generator, totals: np.ndarray, parts: np.ndarray, width: int) -> np.ndarray:
    """totals [B] as sums of `parts` [B] positive numbers, int [B,K]: all sums equally often, 0 behind the last part.

    K is the largest count of parts. `width` is at least every total; draws depend on B and `width` alone.
    """
    place = np.arange(width)
    priority = np.where(place < totals[:, None] - 1, rng.random((len(totals), width)), 2)
    cuts = np.zeros(priority.shape, bool)
    chosen = place < parts[:, None] - 1
    np.put_along_axis(cuts, np.argsort(priority, axis=1, kind="stable"), chosen, axis=1)
    part = np.cumsum(cuts, axis=1) - cuts  # a cut ends the part of its token
    max_parts = max(int(parts.max(initial=0)), 1)
    flat = (part + max_parts * np.arange(len(totals))[:, None])[place < totals[:, None]]
    return np.bincount(flat, minlength=max_parts * len(totals)).reshape(len(totals), max_parts)


def span_mask(rng: np.random.Generator, lengths: np.ndarray, counts: NoiseCounts, width: int) -> np.ndarray:
    """lengths [B] of texts -> bool [B,width], the noise tokens of each."""
    noise = composition(rng, counts.noise, counts.spans, width)
    rest = composition(rng, lengths - counts.noise, counts.spans, width)
    ends = np.cumsum(np.stack([rest, noise], axis=2).reshape(len(lengths), -1), axis=1)
    flat = ends + (width + 1) * np.arange(len(lengths))[:, None]
    changes = np.bincount(flat.ravel(), minlength=(width + 1) * len(lengths)).reshape(len(lengths), width + 1)
    return (np.cumsum(changes, axis=1)[:, :width] % 2 == 1) & (np.arange(width) < lengths[:, None])


class Corrupted(NamedTuple):
    """Texts of which a part is kept: ids [B,W] with sentinels, bool [B,W], which of them are kept, and which of these
    are sentinels."""

    ids: np.ndarray
    kept: np.ndarray
    is_sentinel: np.ndarray


def without(ids: np.ndarray, removed: np.ndarray, valid: np.ndarray, sentinels: Sequence[int]) -> Corrupted:
    """Texts [B,W] without the tokens that are `removed`, bool [B,W]; a sentinel stands for every run of them.

    Without sentinels nothing stands for it. `valid` bool [B,W] is where texts have tokens.
    """
    removed = removed & valid
    if not len(sentinels):
        return Corrupted(ids, valid & ~removed, np.zeros_like(removed))
    begins = removed & ~np.pad(removed[:, :-1], [(0, 0), (1, 0)])
    run = np.maximum(np.cumsum(begins, axis=1) - 1, 0)
    marked = np.where(begins, np.asarray(sentinels)[np.minimum(run, len(sentinels) - 1)], ids)
    return Corrupted(marked, valid & (begins | ~removed), begins)
