"""What a model says of many texts: they share rows, or have rows of similar lengths.

A text reads as if it were alone, whatever stands beside it (`train.data.text_rows`). Rows have few lengths, and batches
few counts of rows, so that few programs serve all texts.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import jax
import numpy as np

import tfm
from train.data.packing import best_fit
from train.data.row_plan import can_share, cannot_share, reads_padding
from train.data.text_rows import Layout, Shape, TextFields, by_text, sizes_of
from train.screens.console import Log
from train.text.special import SpecialTokens

# The shortest rows that texts share, and the places of a row for each text that may stand in it.
SHORTEST, _PLACES = 64, 4

# The shortest row of a text of its own.
_SHORTEST_ALONE = 8

# Batches of full rows that are laid out together: enough for full rows, few enough for what is said of them to fit into
# memory.
BATCHES = 64


class ReadableTexts(Protocol):
    """Examples of a task, each of a text or several: `train.tasks.classify.rows.Examples` are some.

    sizes: tokens of the text of each example, [N], or of its texts, [N,n]
    length: the most that a text may have
    """

    sizes: np.ndarray
    length: int
    text_fields: TextFields
    specials: SpecialTokens

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> dict[str, np.ndarray]:
        """The fields of single texts; -1 is none."""


class TokenTexts:
    """Texts as tokens, `ids` of each, with those that stand around it; none has more than `length`."""

    text_fields = TextFields(("tokens", "valid", "logits"))

    def __init__(self, ids: Sequence[np.ndarray], length: int, specials: SpecialTokens):
        self.ids, self.length, self.specials = ids, length, specials
        self.sizes = np.array([len(row) for row in ids], np.int64)

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> dict[str, np.ndarray]:
        """The tokens of these texts, and which places hold some, int32 [B,T] both."""
        sizes = np.where(rows < 0, 0, self.sizes[rows])
        valid = np.arange(sizes.max(initial=1)) < sizes[:, None]
        tokens = np.full(valid.shape, self.specials.pad, np.int32)
        tokens[valid] = np.concatenate([self.ids[row] for row in rows if row >= 0])
        return {"tokens": tokens, "valid": valid.astype(np.int32)}


def blocks(count: int, batch: int) -> Iterator[range]:
    """The numbers of texts that are read together, in order."""
    size = BATCHES * batch
    return (range(start, min(start + size, count)) for start in range(0, count, size))


def say_fallback(model: tfm.Config, log: Log) -> None:
    """Says in the log why texts do not share rows, where they do not."""
    if not can_share(model):
        rows = "full length, for padding is read" if reads_padding(model) else "about its length"
        log.info(f"each text has a row of {rows}: {cannot_share(model)}")


def read_texts(
    function: Callable[[Mapping[str, np.ndarray]], Mapping[str, jax.Array]],
    model: tfm.Config,
    texts: ReadableTexts,
    numbers: Sequence[int] | np.ndarray,
    batch: int,
    advance: Callable[[int], None],
) -> dict[str, np.ndarray]:
    """What function(batch) says of these texts, arrays [N,...] in their order; by token they are padded, [N,T,...].

    function: reads the fields of a batch (`train.data.text_rows`); what it says is of its texts [B*n,...] or, by the
        names in `texts.text_fields`, of its tokens
    batch: a batch has no more places than so many examples of full length
    """
    numbers = np.asarray(numbers)
    sizes = texts.sizes[numbers]

    def read(seats: np.ndarray, shape: Shape) -> dict[str, np.ndarray]:
        layout = Layout(len(seats), shape, texts.length, 0.0)
        fields = texts.batch(np.where(seats < 0, -1, numbers[seats]))
        packed = layout.pack(fields, texts.text_fields, seats, sizes_of(sizes, seats), texts.specials.pad)
        said = {name: np.asarray(values) for name, values in function(packed).items()}
        return by_text(packed, said, texts.text_fields, texts.length)

    outcomes: dict[str, np.ndarray] = {}
    seats, shapes = zip(*_batches(sizes, model, texts.length, batch), strict=True)
    with ThreadPoolExecutor(_at_a_time()) as threads:
        for places, arrays in zip(seats, threads.map(read, seats, shapes), strict=True):
            places = places[places >= 0]
            for name, values in arrays.items():
                shape_of_all = (len(numbers), *values.shape[1:])
                outcomes.setdefault(name, np.empty(shape_of_all, values.dtype))[places] = values
            advance(len(places))
    return outcomes


def _at_a_time() -> int:
    """Batches that are computed at a time (M110): two fill the cores of a CPU, where a program alone has passes that
    take one. Several devices may have to run their programs in one order."""
    return 2 if jax.device_count() == 1 else 1


def _batches(sizes: np.ndarray, model: tfm.Config, longest: int, batch: int) -> Iterator[tuple[np.ndarray, Shape]]:
    """sizes [N] or [N,n] of examples -> those in the places of every batch, int [rows*slots], -1 for none, and its
    shape.

    The longest rows come first, so that what does not fit into memory fails at once.
    """
    by_example = sizes.reshape(len(sizes), -1)
    texts, shares = by_example.shape[1], can_share(model)
    row_of, row_lengths = _shared_rows(by_example) if shares else _own_rows(by_example, model, longest)
    members = np.argsort(row_of, kind="stable")
    ends = np.cumsum(np.bincount(row_of, minlength=len(row_lengths)))
    for length in np.unique(row_lengths)[::-1].tolist():
        rows = np.flatnonzero(row_lengths == length)
        slots = _slots(length, texts) if shares else 1
        places = np.arange(slots) + (ends[rows - 1] * (rows > 0))[:, None]
        seats = np.where(places < ends[rows][:, None], members[np.minimum(places, len(members) - 1)], -1)
        full = max(1, batch * longest * texts // (length if shares else length * texts))
        for start in range(0, len(rows), full):
            part = seats[start : start + full]
            count = full if len(part) == full else 1 << (len(part) - 1).bit_length()
            part = np.pad(part, ((0, min(count, full) - len(part)), (0, 0)), constant_values=-1)
            yield part.ravel(), Shape(len(part) if shares else len(part) * texts, slots, length)


def _shared_rows(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """sizes [N,n] of examples -> the row of each, and the length of every row: full ones, as short as texts allow."""
    totals = np.maximum(sizes.sum(1), 1)
    lengths = [min(SHORTEST, tfm.bucket(int(totals.sum())))]
    while lengths[-1] < totals.max():
        lengths.append(2 * lengths[-1])
    return best_fit(totals, lengths, [_slots(length, sizes.shape[1]) for length in lengths])


def _slots(length: int, texts: int) -> int:
    """The most examples of so many texts in a shared row."""
    return max(1, length // (_PLACES * texts))


def _own_rows(sizes: np.ndarray, model: tfm.Config, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """sizes [N,n] of examples -> a row for each, and its length: 8, 12, 16, 24, ... or, where padding is read, the
    longest."""
    sizes = sizes.max(1)
    if reads_padding(model):
        return np.arange(len(sizes)), np.full(len(sizes), longest)
    return np.arange(len(sizes)), np.minimum([_round_up(size) for size in sizes.tolist()], longest)


def _round_up(length: int) -> int:
    """8, 12, 16, 24, 32, 48, ...: the next power of two, or three quarters of it."""
    power = max(_SHORTEST_ALONE, 1 << math.ceil(math.log2(max(length, 1))))
    return power * 3 // 4 if power > _SHORTEST_ALONE and length <= power * 3 // 4 else power
