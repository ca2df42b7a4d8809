"""Rows of masked diffusion: pieces of the joined text, of which some tokens are masked anew for every batch."""

from collections.abc import Iterator

import numpy as np

from train.data.tokens import DocumentTokens
from train.tasks.lm.rows import SpanWindows
from train.text.special import SpecialTokens

# The least probability with which a token is masked (Nie et al. 2025, appendix A).
SMALLEST_RATE = 1e-3


class DiffusionRows:
    """Rows of `length` tokens of the text with its marks.

    draws: how often each piece comes, with other masks
    jitter: every time, each piece is moved right by a random number of tokens (for training)
    """

    buckets, independent_rows = None, True

    def __init__(
        self,
        text: DocumentTokens,
        length: int,
        times: str,
        specials: SpecialTokens,
        num_bytes: int,
        draws: int = 1,
        jitter: bool = False,
    ):
        self.text, self.length, self.times, self.specials = text, length, times, specials
        self.draws, self.jitter = draws, jitter
        self.windows = SpanWindows(text.spans(joined=True), length, length)
        self.tokens = text.num_tokens
        self.bytes_per_token = num_bytes / max(1, self.windows.tokens)
        self.padding = 1 - self.windows.tokens / max(1, len(self.windows) * length)

    def __len__(self):
        return self.draws * len(self.windows)

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every document."""
        return self.text.split()

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.diffuse.task`. What is drawn depends on the count of rows alone."""
        shifts, times, order = rng.random(len(rows)), self._times(rng, len(rows)), rng.random((len(rows), self.length))
        filled = rows >= 0
        windows = self.windows.of_rows(rows[filled] % max(1, len(self.windows)))
        starts, sizes = windows.starts, np.zeros(len(rows), np.int64)
        sizes[filled] = windows.sizes
        if self.jitter:
            starts = np.minimum(starts + (shifts[filled] * self.length).astype(np.int64), windows.ends - windows.sizes)
        valid = np.arange(self.length) < sizes[:, None]
        targets = np.full(valid.shape, self.specials.pad, np.int32)
        targets[valid] = self.text.read(starts, windows.sizes)
        is_masked, weights = masks(times, order, sizes, self.times == "counts")
        return {
            "tokens": np.where(is_masked, self.specials.mask, targets).astype(np.int32),
            "valid": valid.astype(np.int32),
            "targets": targets,
            "weights": (is_masked * weights[:, None]).astype(np.float32),
            "bytes": (sizes * self.bytes_per_token).astype(np.float32),
        }

    def _times(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Times [B] in [0, 1): of rows in turn, B parts apart from a common start (Sahoo et al. 2024, appendix C)."""
        if self.times == "random":
            return rng.random(count)
        return (rng.random() + np.arange(count) / max(1, count)) % 1


def masks(times: np.ndarray, order: np.ndarray, sizes: np.ndarray, counts: bool) -> tuple[np.ndarray, np.ndarray]:
    """times [B] and order [B,T] in [0, 1), sizes [B] of rows -> which tokens are masked, bool [B,T], and what each of
    them counts, [B].

    counts: 1 + floor(time * size) tokens are masked, those first in the order, and each counts size over their count
        (Nie et al. 2025, eq. 6); else each token with a probability p, and it counts 1 / p (eq. 3)
    """
    valid = np.arange(order.shape[1]) < sizes[:, None]
    if not counts:
        rates = SMALLEST_RATE + (1 - SMALLEST_RATE) * times
        return valid & (order < rates[:, None]), 1 / rates
    limits = np.minimum(1 + (times * sizes).astype(np.int64), sizes)
    ranks = np.argsort(np.argsort(np.where(valid, order, 2), axis=1, kind="stable"), axis=1, kind="stable")
    return valid & (ranks < limits[:, None]), sizes / np.maximum(limits, 1)
