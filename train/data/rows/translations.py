"""Rows of a source and its translation, in buckets of similar lengths."""

from collections.abc import Iterator, Sequence

import numpy as np

from train import UserError
from train.data.buckets import Buckets
from train.data.sources.parallel import Pair
from train.data.tokens import Tokens, ranges
from train.settings.schema import Batch
from train.text.tokenizer import SequenceTemplate


class TranslationPairs:
    """Rows of a source and a target, each with its special tokens, in at most `max_shapes` buckets.

    `all_pairs` are all pairs, `pairs` those that fit into batch.length, `long` the rest. Raises UserError where none
    fits.
    """

    independent_rows = True

    def __init__(
        self,
        pairs: Sequence[Pair],
        sides: Sequence[Tokens],
        batch: Batch,
        template: SequenceTemplate,
        smoothing: float,
        max_shapes: int,
    ):
        self.template, self.smoothing = template, smoothing
        self.source, self.target = sides
        special_tokens = len(template.prefix) + len(template.suffix)
        lengths = np.stack([side.lengths + special_tokens for side in sides], axis=1)
        fits = lengths.max(1) <= batch.length
        if not fits.any():
            raise UserError(
                f"none of the {len(pairs):,} pairs has at most --batch.length={batch.length} tokens a side, as "
                f"{' | '.join(pairs[0])[:80]!r}; raise it"
            )
        self.all_pairs = pairs
        self.pair_of_row = np.flatnonzero(fits)
        self.pairs = [pairs[n] for n in self.pair_of_row.tolist()]
        self.long = [pairs[n] for n in np.flatnonzero(~fits).tolist()]
        self.buckets = Buckets(lengths[self.pair_of_row], batch, max_shapes)
        self.tokens, self.padding = self.buckets.tokens, self.buckets.padding

    def __len__(self):
        return len(self.pair_of_row)

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every pair that fits."""
        return (np.concatenate([self.source[pair], self.target[pair]]) for pair in self.pair_of_row)

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.translate`."""
        source_length, target_length = self.buckets.shape(rows).lengths
        tokens, valid = self._wrapped(self.source, rows, source_length)
        targets, is_target = self._wrapped(self.target, rows, target_length)
        decoder_tokens = np.where(is_target, np.roll(targets, 1, axis=1), self.template.pad)
        decoder_tokens[is_target[:, 0], 0] = self.template.decoder_start
        return {
            "tokens": tokens,
            "valid": valid.astype(np.int32),
            "target": decoder_tokens,
            "targets": targets,
            "weights": is_target.astype(np.float32),
            "smoothing": np.full(len(rows), self.smoothing, np.float32),
        }

    def _wrapped(self, side: Tokens, rows: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Texts with prefix and suffix, int32 [B, length], and where they have tokens, bool; row -1 is empty."""
        prefix, suffix = self.template.prefix, self.template.suffix
        filled = np.flatnonzero(rows >= 0)
        texts = self.pair_of_row[rows[filled]]
        starts, sizes = side.starts[texts], side.starts[texts + 1] - side.starts[texts]
        text_ends, ends = np.zeros((2, len(rows), 1), int)
        text_ends[filled, 0] = len(prefix) + sizes
        ends[filled, 0] = len(prefix) + sizes + len(suffix)
        tokens = np.full((len(rows), length), self.template.pad, np.int32)
        place = np.arange(length)
        tokens[(place >= len(prefix)) & (place < text_ends)] = side.ids[ranges(starts, sizes)]
        tokens[filled[:, None], place[: len(prefix)]] = prefix
        tokens[filled[:, None], text_ends[filled] + np.arange(len(suffix))] = suffix
        return tokens, place < ends
