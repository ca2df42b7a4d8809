"""Rows of denoising: pieces of the joined text, each with noise that is drawn anew for every batch."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from train.data.tokens import DocumentTokens, ranges
from train.tasks.denoise import noise
from train.tasks.denoise.noise import Corrupted, RowSizes
from train.tasks.denoise.options import Denoiser
from train.tasks.lm.rows import SpanWindows
from train.text.tokenize import SequenceTemplate


class DrawnPieces(NamedTuple):
    """Pieces of a text: ids [B,W], bool [B,W], where they have tokens, and bool [B,W], those that are left out.

    has_spans: bool [B], False where all tokens after a prefix are left out
    """

    ids: np.ndarray
    valid: np.ndarray
    removed: np.ndarray
    has_spans: np.ndarray


class NoisedTexts(NamedTuple):
    """What the encoder reads of texts, what the decoder writes, and bool [B], which rows have a text."""

    inputs: Corrupted
    targets: Corrupted
    is_filled: np.ndarray


class PieceRows(ABC):
    """Rows of pieces of `width` tokens with some noise.

    length, target_length: places of the encoder, and of the decoder
    jitter: every time, each piece is moved right by a random number of tokens (for training)
    """

    buckets, independent_rows = None, True
    padding: float

    def __init__(
        self,
        text: DocumentTokens,
        template: SequenceTemplate,
        width: int,
        length: int,
        target_length: int,
        jitter: bool = False,
    ):
        self.text, self.template, self.jitter, self.width = text, template, jitter, width
        self.length, self.target_length = length, target_length
        self.windows = SpanWindows(text.spans(joined=True), width, width)
        self.tokens = text.num_tokens

    def __len__(self):
        return len(self.windows)

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every document."""
        return self.text.split()

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.denoise.task`. What is drawn depends on the count of rows alone."""
        inputs, targets, is_filled = self._sides(rows, rng)
        tokens, is_token, _ = self._wrapped(inputs, is_filled, self.length, self.template.frames[0])
        labels, is_target, is_text = self._wrapped(targets, is_filled, self.target_length, self.template.frames[1])
        shifted = np.roll(labels, 1, axis=1)
        shifted[:, 0] = self.template.decoder_start
        return {
            "tokens": tokens,
            "valid": is_token.astype(np.int32),
            "target": np.where(is_target, shifted, self.template.pad).astype(np.int32),
            "targets": labels,
            "weights": is_target.astype(np.float32),
            "words": is_text.astype(np.float32),
        }

    @abstractmethod
    def _sides(self, rows: np.ndarray, rng: np.random.Generator) -> NoisedTexts:
        """The two sides of these rows, of which row -1 is empty."""

    def _read(
        self, rows: np.ndarray, limits: np.ndarray, shifts: np.ndarray, offsets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of these rows, int [B,W], and where there are any, bool [B,W]; a single token makes no row.

        limits: tokens of a row, [B]
        shifts, offsets: [B] in [0, 1), where it begins: of the piece with jitter, and in the piece
        """
        starts, sizes = np.zeros((2, len(rows)), np.int64)
        filled = rows >= 0
        windows = self.windows.of_rows(rows[filled])
        moved = (shifts[filled] * self.width).astype(np.int64) if self.jitter else 0
        sizes[filled] = np.minimum(windows.sizes, limits[filled])
        free = windows.sizes - sizes[filled]
        starts[filled] = np.minimum(windows.starts + moved, windows.ends - windows.sizes)
        starts[filled] += (offsets[filled] * (free + 1)).astype(np.int64)
        sizes[sizes < 2] = 0
        valid = np.arange(self.width) < sizes[:, None]
        ids = np.full(valid.shape, self.template.pad, np.int64)
        ids[valid] = self.text.read(starts[sizes > 0], sizes[sizes > 0])
        return ids, valid

    def _wrapped(
        self, side: Corrupted, is_filled: np.ndarray, length: int, frame: tuple[list[int], list[int]]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What is kept of texts, with prefix and suffix, int32 [B,length], and bool [B,length] twice: where there is a
        token, and where it is one of the text."""
        prefix, suffix = (np.array(part, np.int64) for part in frame)
        counts = side.kept.sum(1)
        widths = np.where(is_filled, len(prefix) + counts + len(suffix), 0)
        place = np.arange(length)
        is_token = place < widths[:, None]
        inner = is_token & (place >= len(prefix)) & (place < (widths - len(suffix))[:, None])
        tokens = np.full(is_token.shape, self.template.pad, np.int32)
        tokens[inner] = side.ids[side.kept]
        is_text = inner.copy()
        is_text[inner] = ~side.is_sentinel[side.kept]
        rows = np.flatnonzero(is_filled)
        tokens[rows, : len(prefix)] = prefix
        behind = ranges(widths[rows] - len(suffix), np.full(len(rows), len(suffix)))
        tokens[np.repeat(rows, len(suffix)), behind] = np.tile(suffix, len(rows))
        return tokens, is_token, is_text


class DenoisingRows(PieceRows):
    """Rows of as many tokens as fill `length` places of the encoder, by any of several denoisers."""

    def __init__(
        self,
        text: DocumentTokens,
        denoisers: Sequence[Denoiser],
        template: SequenceTemplate,
        sentinels: Sequence[int],
        length: int,
        target_length: int,
        jitter: bool = False,
    ):
        self.denoisers, self.sentinels = denoisers, sentinels
        self.sizes = sizes_of(denoisers, length, template)
        super().__init__(text, template, max(size.text for size in self.sizes), length, target_length, jitter)
        specials = sum(map(len, template.frames[0]))
        filled = sum(
            denoiser.share * (size.inputs + size.targets if denoiser.rate else size.text + 2 * specials)
            for denoiser, size in zip(denoisers, self.sizes, strict=True)
        )
        self.padding = 1 - filled / (length + target_length)

    def _sides(self, rows: np.ndarray, rng: np.random.Generator) -> NoisedTexts:
        ids, valid, removed, has_spans = self._pieces(rows, rng)
        inputs, targets = (
            _choose(
                has_spans,
                noise.without(ids, part, valid, self.sentinels),
                noise.without(ids, part, valid, sentinels=()),
            )
            for part in (removed, ~removed)
        )
        return NoisedTexts(inputs, targets, np.asarray(valid.any(1)))

    def _pieces(self, rows: np.ndarray, rng: np.random.Generator) -> DrawnPieces:
        """The tokens of these rows, and what is left out; row -1 is empty, and so is a piece of one token."""
        chosen = rng.choice(len(self.denoisers), size=len(rows), p=[denoiser.share for denoiser in self.denoisers])
        shifts, offsets, cuts = rng.random((3, len(rows)))
        limits = np.array([size.text for size in self.sizes])[chosen]
        ids, valid = self._read(rows, limits, shifts, offsets)
        sizes = valid.sum(1)
        is_prefix = np.array([denoiser.rate is None for denoiser in self.denoisers])[chosen]
        rates, spans = (
            np.array([getattr(denoiser, name) or 0.5 for denoiser in self.denoisers])[chosen]
            for name in ("rate", "span")
        )
        counts = noise.counts_of(sizes, rates, spans)
        removed = noise.span_mask(rng, sizes, counts, self.width)
        cut = 1 + (cuts * np.maximum(sizes - 1, 0)).astype(np.int64)
        after = (np.arange(self.width) >= cut[:, None]) & valid
        return DrawnPieces(ids, valid, np.where(is_prefix[:, None], after, removed), ~is_prefix)


def sizes_of(denoisers: Sequence[Denoiser], length: int, template: SequenceTemplate) -> list[RowSizes]:
    """The sizes of full rows of every denoiser."""
    specials = max(len(prefix) + len(suffix) for prefix, suffix in template.frames)
    return [noise.row_sizes(denoiser, length, specials) for denoiser in denoisers]


def _choose(has_spans: np.ndarray, spans: Corrupted, prefixes: Corrupted) -> Corrupted:
    """The rows of `spans` where they have these, else those of `prefixes`."""
    choose = has_spans[:, None]
    return Corrupted(*(np.where(choose, *sides) for sides in zip(spans, prefixes, strict=True)))
