"""Rows of text for language models of both directions: for every token the next one, and the one before."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from train.data import packing
from train.data.tokens import DocumentTokens
from train.text.special import SpecialTokens


class Samples(NamedTuple):
    """Tokens that the training loss compares targets with: `count` for each row, of a vocabulary of `vocab`."""

    per_row: int
    vocab: int

    def draw(self, rows: int, rng: np.random.Generator) -> np.ndarray:
        """int32 [B,n]: token k with probability (log(k + 2) - log(k + 1)) / log(vocab + 1) (`tfm.log_uniform`)."""
        uniform = rng.random((rows, self.per_row))
        return np.minimum(np.expm1(uniform * np.log(self.vocab + 1)), self.vocab - 1).astype(np.int32)


class BothDirections:
    """Rows of packed text; `samples` is None where the loss compares with all tokens."""

    buckets, independent_rows = None, True

    def __init__(
        self, text: DocumentTokens, length: int, pack: bool, specials: SpecialTokens, samples: Samples | None = None
    ):
        self.text, self.specials, self.samples = text, specials, samples
        self.plan = packing.plan(text, length, pack)
        self.tokens, self.padding = text.num_tokens, self.plan.padding

    def __len__(self):
        return self.plan.rows

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every document."""
        return self.text.split()

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.bilm.task`."""
        fields = packing.fill(self.text, self.plan, rows, self.specials)
        tokens, segments = fields["tokens"], fields["segments"]
        has_next = np.zeros(tokens.shape, np.float32)
        has_next[:, :-1] = (segments[:, :-1] == segments[:, 1:]) & (segments[:, 1:] > 0)
        fields |= {
            "targets": np.roll(tokens, -1, axis=1),
            "weights": has_next,
            "previous_targets": np.roll(tokens, 1, axis=1),
            "previous_weights": np.roll(has_next, 1, axis=1),
        }
        return fields if self.samples is None else fields | {"samples": self.samples.draw(len(rows), rng)}
