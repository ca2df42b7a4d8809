"""Rows of packed text, some of whose tokens are hidden anew for every batch."""

from collections.abc import Iterator

import numpy as np

from train.data import packing
from train.data.tokens import DocumentTokens
from train.tasks.rtd.masking import ReplacementMasker


class HiddenRows:
    """Rows of packed text with hidden tokens; `weight` is that of the discriminator's loss."""

    buckets, independent_rows = None, True

    def __init__(self, text: DocumentTokens, length: int, pack: bool, masker: ReplacementMasker, weight: float):
        self.text, self.masker, self.weight = text, masker, weight
        self.plan = packing.plan(text, length, pack)
        self.tokens, self.padding = text.num_tokens, self.plan.padding

    def __len__(self):
        return self.plan.rows

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every document."""
        return self.text.split()

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.rtd.task`."""
        fields = self.masker(rng, packing.fill(self.text, self.plan, rows, self.masker.specials))
        seeds = rng.integers(0, 2**31 - 1, len(rows), dtype=np.int32)
        return fields | {"seeds": seeds, "scale": np.full(len(rows), self.weight, np.float32)}
