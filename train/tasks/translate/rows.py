"""Rows of sources and their translations, packed or in buckets of similar lengths."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from train import UserError
from train.data.sources import kept_pairs
from train.data.sources.kept_pairs import Pair
from train.data.tokens import PLAIN, Segmentation, TokenizedTexts, encode, ranges
from train.screens.console import Log
from train.settings.schema import Batch, Run
from train.tasks.translate import marks, pair_packing
from train.tasks.translate.options import Translate
from train.tasks.translate.pair_packing import RowPlan
from train.text.special import target_tokenizer
from train.text.tokenize import SequenceTemplate


class RowOptions(NamedTuple):
    """How pairs become rows.

    smoothing: of their labels
    max_shapes, pack, like: as in `pair_packing.plan`
    """

    smoothing: float
    max_shapes: int
    pack: bool | None = None
    like: RowPlan | None = None


class TranslationPairs:
    """Pairs of a source and a target, each with its special tokens, in rows (`plan`).

    `all_pairs` are all pairs, `pairs` those that fit into batch.length, `long` the rest. Raises UserError where none
    fits.
    """

    independent_rows = True

    def __init__(
        self,
        pairs: Sequence[Pair],
        sides: Sequence[TokenizedTexts],
        batch: Batch,
        template: SequenceTemplate,
        options: RowOptions,
    ):
        self.template, self.smoothing = template, options.smoothing
        self.source, self.target = sides
        special = [len(prefix) + len(suffix) for prefix, suffix in template.frames]
        lengths = np.stack([side.lengths + count for side, count in zip(sides, special, strict=True)], axis=1)
        fits = lengths.max(1) <= batch.length
        if not fits.any():
            raise UserError(
                f"none of the {len(pairs):,} pairs has at most --batch.length={batch.length} tokens a side, as "
                f"{' | '.join(pairs[0])[:80]!r}; raise it"
            )
        self.all_pairs = pairs
        self.fitting = np.flatnonzero(fits)
        self.pairs = kept_pairs.take(pairs, self.fitting)
        self.long = kept_pairs.take(pairs, np.flatnonzero(~fits))
        self.plan = pair_packing.plan(lengths[fits], batch, options.max_shapes, options.pack, options.like)
        self.buckets = self.plan.buckets
        self.tokens, self.padding = self.buckets.tokens, self.buckets.padding

    def __len__(self):
        return len(self.fitting)

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every pair that fits."""
        return (np.concatenate([self.source[pair], self.target[pair]]) for pair in self.fitting)

    def pairs_of(self, row: int) -> list[Pair]:
        """The pairs of a row, in order; row -1 is empty."""
        first, end = self.plan.bounds[row : row + 2] if row >= 0 else (0, 0)
        return [self.pairs[n] for n in self.plan.order[first:end]]

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.translate.task`."""
        source_length, target_length = self.buckets.shape(rows).lengths
        frame, target_frame = self.template.frames
        tokens, segments, positions = self._wrapped(self.source, rows, source_length, frame)
        targets, target_segments, target_positions = self._wrapped(self.target, rows, target_length, target_frame)
        is_target = target_segments > 0
        decoder_tokens = np.where(is_target, np.roll(targets, 1, axis=1), self.template.pad)
        decoder_tokens[is_target & (target_positions == 0)] = self.template.decoder_start
        return {
            "tokens": tokens,
            "segments": segments,
            "positions": positions,
            "target": decoder_tokens,
            "target_segments": target_segments,
            "target_positions": target_positions,
            "targets": targets,
            "weights": is_target.astype(np.float32),
            "smoothing": np.full(len(rows), self.smoothing, np.float32),
        }

    def _wrapped(
        self, side: TokenizedTexts, rows: np.ndarray, length: int, frame: tuple[list[int], list[int]]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Texts with prefix and suffix, int32 [B,length], the segment of each token, from 1, and its position there.

        Segments are 0 where there is no token. Row -1 is empty.
        """
        (prefix, suffix), bounds = frame, self.plan.bounds
        counts = np.where(rows < 0, 0, bounds[rows + 1] - bounds[rows])
        texts = self.fitting[self.plan.order[ranges(bounds[rows], counts)]]
        sizes = side.starts[texts + 1] - side.starts[texts]
        widths = len(prefix) + sizes + len(suffix)
        ends = np.concatenate([[0], np.cumsum(widths)])
        firsts = np.repeat(np.arange(len(rows)) * length - ends[np.cumsum(counts) - counts], counts) + ends[:-1]
        tokens = np.full(len(rows) * length, self.template.pad, np.int32)
        segments, positions = np.zeros((2, len(rows) * length), np.int32)
        places = ranges(firsts, widths)
        segments[places] = np.repeat(ranges(np.ones_like(counts), counts), widths)
        positions[places] = ranges(np.zeros_like(widths), widths)
        tokens[firsts[:, None] + np.arange(len(prefix))] = prefix
        side.write(tokens, firsts + len(prefix), side.starts[texts], sizes)
        tokens[(firsts + widths)[:, None] - len(suffix) + np.arange(len(suffix))] = suffix
        shape = len(rows), length
        return tokens.reshape(shape), segments.reshape(shape), positions.reshape(shape)


class PairReader:
    """Makes rows of pairs. All rows have the shape of the first ones where pairs share rows."""

    def __init__(self, run: Run[Translate], tokenizer: Tokenizer, log: Log):
        self.run, self.tokenizer, self.log = run, tokenizer, log
        self._first: RowPlan | None = None

    def training_rows(self, pairs: Sequence[Pair], segmentation: Segmentation) -> TranslationPairs:
        """Rows with smoothed labels."""
        return self._rows(pairs, "training pairs", segmentation, self.run.task.smoothing, self.run.batch.shapes)

    def rows(self, pairs: Sequence[Pair], name: str) -> TranslationPairs:
        """Rows to evaluate, in half as many shapes."""
        return self._rows(pairs, name, PLAIN, 0.0, max(1, self.run.batch.shapes // 2))

    def _encoded(self, pairs: Sequence[Pair], name: str, segmentation: Segmentation) -> list[TokenizedTexts]:
        """The tokens of both sides. Raises UserError where there are no pairs."""
        if not pairs:
            raise UserError(f"none of the {name} has tokens on both sides; correct the data, or the tokenizer")
        tokenizers = self.tokenizer, target_tokenizer(self.tokenizer)
        return [
            encode(tokenizer, side, self.log, name, segmentation)
            for tokenizer, side in zip(tokenizers, kept_pairs.sides(pairs), strict=True)
        ]

    def _rows(
        self, pairs: Sequence[Pair], name: str, segmentation: Segmentation, smoothing: float, max_shapes: int
    ) -> TranslationPairs:
        """Raises UserError for a pair that is too long under --task.long=error."""
        run = self.run
        sides = self._encoded(pairs, name, segmentation)
        says = np.all([side.lengths > 0 for side in sides], axis=0)
        if not says.all():
            self.log.info(f"{(~says).sum():,} of {len(pairs):,} {name} have a side without tokens, and are left out")
            pairs = kept_pairs.take(pairs, np.flatnonzero(says))
            sides = self._encoded(pairs, name, segmentation)
        template = marks.template(self.tokenizer, run.task)
        pack = run.data.pack if run.model.reads_packed else False
        rows = TranslationPairs(pairs, sides, run.batch, template, RowOptions(smoothing, max_shapes, pack, self._first))
        self._first = self._first or rows.plan
        if rows.long and run.task.long == "error":
            pair = " | ".join(rows.long[0])
            raise UserError(
                f"{pair!r} is longer than --batch.length={run.batch.length} tokens; raise that, or leave the pair out"
            )
        return rows
