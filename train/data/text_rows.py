"""Texts of a batch in shared rows: several of them in one row, where no text sees another.

A batch has the same number of texts at every step, and nearly as many tokens (`train.data.balance`): all batches have
one shape (M59: 0.62 of a step at 48 tokens, 0.21 at 128). Row 1 of a batch of two texts a row, with room for three:

    tokens      [CLS] a b [SEP] [CLS] c [SEP] [PAD]     what the model reads
    segments      1   1 1   1     2   2   2     0       which text of the row; 0 is padding
    positions     0   1 2   3     0   1   2     0       restart at every text
    rows         17   4 -1                              the numbers of the texts, -1 for none

Fields of a text have a value for each place of a text [B*n], row by row: n = len(rows) // len(tokens). An example may
be of several texts, which are neighbours in a row; where texts cannot share rows, each of them has its own.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from train.data import balance
from train.data.fields import Field
from train.data.tokens import ranges
from train.settings.schema import Config, Run

# Batches that are dealt at once; those that decide the length of rows, and draws of them at most.
_WINDOW, _LOOKED_AT, _DRAWS = 512, 512, 16

# The search for the number of rows of a batch: how many numbers it tries, on batches of how many texts in all.
_TRIED, _TRIED_ON = 32, 16_384

# The padding that longer rows may save, and the most that they may cost.
_PADDING, _DEARER = 0.05, 1.2


def fields(texts: int = 1) -> dict[str, Field]:
    """What a batch of examples of so many texts has beside the fields of its task."""
    by_token = dict.fromkeys(("segments", "positions"), Field("BT", np.int32, rows=texts))
    return {**by_token, "rows": Field("B", np.int32)}


class TextFields(NamedTuple):
    """What the rows of a task say of its fields, and of its outcomes.

    by_token: those with a value for every token of a text
    by_place: those that hold a place in a text
    """

    by_token: tuple[str, ...] = ("tokens", "types", "valid")
    by_place: tuple[str, ...] = ()


class Shape(NamedTuple):
    """The shape of a batch: its rows, the examples that each may hold, and the places of each."""

    rows: int
    slots: int
    length: int

    def cost(self, width: int) -> int:
        """Multiplications of a layer, about: of products with weights, and of attention."""
        return self.rows * self.length * (6 * width + self.length)


@dataclasses.dataclass(frozen=True)
class Layout:
    """How batches of `size` examples lie in rows.

    longest: the most tokens that an example may have
    tokens: those of a batch on average
    """

    size: int
    shape: Shape
    longest: int
    tokens: float

    def __str__(self):
        rows, _, length = self.shape
        return f"{self.size} texts of {self.tokens:,.0f} tokens on average, in {rows} rows of {length}"

    @property
    def padding(self) -> float:
        """Share of places that hold no token."""
        return 1 - self.tokens / (self.shape.rows * self.shape.length)

    @property
    def packs(self) -> bool:
        """Whether texts share rows."""
        return self.shape.slots > 1

    @property
    def widened(self) -> "Layout":
        """The layout of a batch whose texts do not fit: there is room for any."""
        return dataclasses.replace(self, shape=self.shape._replace(length=self.shape.slots * self.longest))

    def deal(self, lengths: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """lengths [N] of the examples of whole batches -> the example in every place of each, int [E,rows*slots], or
        -1; batches of equal work (`train.data.balance`), in random order."""
        members = balance.deal(lengths, self.size, rng)
        seats = balance.share(lengths[members], self.shape.rows, self.shape.slots).reshape(len(members), -1)
        return np.where(seats < 0, -1, np.take_along_axis(members, seats, axis=1))

    def fitted(self, lengths: np.ndarray) -> "Layout":
        """The layout whose rows are as long as before, or as long as the examples of these lengths [E,rows*slots] in
        their places need."""
        longest = int(lengths.reshape(-1, self.shape.slots).sum(1).max(initial=1))
        return dataclasses.replace(self, shape=self.shape._replace(length=max(self.shape.length, longest)))

    def pack(
        self, fields: Mapping[str, np.ndarray], names: TextFields, rows: np.ndarray, sizes: np.ndarray, pad: int
    ) -> dict[str, np.ndarray]:
        """Fields of single texts -> those of a batch: see the top of this file.

        fields: of the texts in the places of a batch, [places,...]; by token they are padded, [places,T] or
            [places,n,T] of examples of n texts
        rows: the numbers of these texts, or -1
        sizes: their tokens, [places] or [places,n]
        pad: the token that is padding
        """
        sizes, single = sizes.reshape(self.shape.rows, -1), fields[names.by_token[0]].shape[-1]
        fits = sizes.sum(1).max(initial=0) <= self.shape.length
        shape = self.shape if fits else self.widened.shape
        firsts = (np.cumsum(sizes, axis=1) - sizes).ravel()
        row = np.arange(sizes.size) // sizes.shape[1]
        places = ranges(row * shape.length + firsts, sizes.ravel())
        of_texts = ranges(np.arange(sizes.size) * single, sizes.ravel())
        batch: dict[str, np.ndarray] = {}
        for name, field in fields.items():
            if name in names.by_token:
                packed = np.full(shape.rows * shape.length, pad if name == "tokens" else 0, field.dtype)
                packed[places] = field.ravel()[of_texts]
                batch[name] = packed.reshape(shape.rows, shape.length)
            elif name in names.by_place:
                batch[name] = (field + firsts).astype(field.dtype)
            else:
                batch[name] = field
        del batch["valid"]
        segments, positions = np.zeros((2, shape.rows * shape.length), np.int32)
        segments[places] = np.repeat(np.arange(sizes.size) % sizes.shape[1] + 1, sizes.ravel())
        positions[places] = ranges(np.zeros_like(firsts), sizes.ravel())
        layout = {"segments": segments, "positions": positions}
        in_rows = {name: field.reshape(shape.rows, shape.length) for name, field in layout.items()}
        return batch | in_rows | {"rows": rows.astype(np.int32)}


def by_text(
    batch: Mapping[str, np.ndarray], outcomes: Mapping[str, np.ndarray], names: TextFields, longest: int
) -> dict[str, np.ndarray]:
    """What a model says of a batch -> arrays [N,...] of the N examples that are there, in the order of the batch; by
    token they are padded with zeros, [N,longest,...]. Numbers of the batch stay as they are."""
    is_there = batch["rows"] >= 0
    arrays = {name: values for name, values in outcomes.items() if values.ndim}
    for name in set(arrays) & set(names.by_token):
        arrays[name] = _single_texts(batch, arrays[name], longest)
    return {**outcomes, **{name: values[is_there] for name, values in arrays.items()}}


def separated(
    batch: Mapping[str, np.ndarray], names: TextFields, longest: int, texts: int = 1
) -> dict[str, np.ndarray]:
    """The batch in which each text has a row, of `longest` places; its examples have so many `texts`."""
    segments, positions = batch["segments"], batch["positions"]
    slots = len(batch["rows"]) * texts // len(segments)
    fields = dict(batch)
    for name in {*names.by_token, "positions"} & set(batch):
        fields[name] = _single_texts(batch, batch[name], longest, texts)
    fields["segments"] = _single_texts(batch, np.minimum(segments, 1), longest, texts)
    is_first = (segments > 0) & (positions == 0)
    firsts = np.zeros((len(segments), slots), np.int32)
    rows, places = np.nonzero(is_first)
    firsts[rows, segments[rows, places] - 1] = places
    moved = {name: (batch[name] - firsts.ravel()).astype(batch[name].dtype) for name in names.by_place}
    return fields | {name: np.where(batch["rows"] < 0, 0, places) for name, places in moved.items()}


def _single_texts(batch: Mapping[str, np.ndarray], values: np.ndarray, longest: int, texts: int = 1) -> np.ndarray:
    """values [rows,T,...], or [rows*n,T] of each text for every place of its row -> [rows*n,longest,...]."""
    segments = batch["segments"]
    count = len(batch["rows"]) * texts // len(segments)
    numbers = np.arange(len(segments) * count)
    of_text = segments[numbers // count] == (numbers % count + 1)[:, None]
    row_of = numbers // count if len(values) == len(segments) else numbers
    text, places = np.nonzero(of_text)
    singles = np.zeros((len(numbers), longest, *values.shape[2:]), values.dtype)
    singles[text, batch["positions"][text // count, places]] = values[row_of[text], places]
    return singles


def texts_a_step(run: Run, sizes: Sequence[np.ndarray], texts: int = 1) -> int:
    """The examples of a batch: --batch.size, or as many as fill --batch.tokens places but for a little padding.

    sizes: the tokens of each example of so many `texts`
    """
    batch = run.batch
    if batch.tokens is None:
        return batch.size
    mean = np.mean([lengths.mean() for lengths in sizes]) / (1 - _PADDING) if run.packs_rows else texts * batch.length
    return batch.unit * max(1, int(batch.tokens / mean) // batch.unit)


def why_alone(run: Run) -> str:
    """Why each text of a run has a row."""
    if run.model.reads_packed:
        return "--data.pack=false" if run.data.pack is False else "shared rows would be dearer"
    return cannot_share(run.model)


def cannot_share(model: Config) -> str:
    """Why texts cannot share rows of a model."""
    parts = [model.input, *(options for kind in model.kinds for options in kind)]
    names = dict.fromkeys(options.name for options in parts if not options.reads_packed)
    return f"{' and '.join(names)} cannot keep texts of a row apart"


def row_unit(run: Run, size: int) -> int:
    """What must divide the rows of a batch of `size` texts: its parts, and the devices that share rows."""
    devices = jax.device_count() // math.prod(max(1, cut) for cut in (run.mesh.tensor, run.mesh.context))
    return run.batch.accumulate * math.gcd(size // run.batch.accumulate, max(1, devices))


def plan(run: Run, sizes: Sequence[np.ndarray], pack: bool) -> Layout:
    """The layout of the batches of a run.

    sizes: the tokens of each text, [N], or [N,n] of examples of n texts, once for each segmentation
    pack: texts share rows
    """
    texts = sizes[0].size // max(1, len(sizes[0]))
    sizes = [part.reshape(len(part), -1).sum(1) for part in sizes]
    size, length = texts_a_step(run, sizes, texts), run.batch.length
    unit, width = row_unit(run, size), run.model.width
    multiple = 2 if jax.default_backend() == "cpu" else 8
    mean = float(np.mean([lengths.mean() for lengths in sizes]))
    alone = Layout(size, Shape(size * texts, 1, length), texts * length, mean * size)
    if not pack or len(sizes[0]) < size:
        return alone
    lengths = _example_batches(sizes, size)

    def shared(rows: int, lengths: np.ndarray) -> Layout:
        """The layout of so many rows, in which batches of these lengths [E,size] fit."""
        slots = 1 + -(-size // rows)
        fullest = 1 + int(balance.tokens_of_rows(lengths, balance.share(lengths, rows, slots)).max())
        return dataclasses.replace(alone, shape=Shape(rows, slots, -(-fullest // multiple) * multiple))

    longest, total = int(lengths.max()), int(lengths.sum(1).max())

    def bound(rows: int) -> int:
        """What so many rows cost at least: they hold the longest text, and the batch of most tokens."""
        return Shape(rows, 1, max(longest, -(-total // rows))).cost(width)

    layouts, few = [alone], lengths[: max(1, _TRIED_ON // size)]
    for rows in sorted(range(unit, size, unit * max(1, size // (unit * _TRIED))), key=bound):
        chosen = _choose(layouts, width)
        if bound(rows) > chosen.shape.cost(width) * (1 if chosen.padding <= _PADDING else _DEARER):
            break
        layouts.append(shared(rows, few))
    chosen = _choose(layouts, width)
    return shared(chosen.shape.rows, lengths) if chosen.packs else alone


def _example_batches(sizes: Sequence[np.ndarray], size: int) -> np.ndarray:
    """The lengths of texts in some batches of a run, int [E,size]; sizes [N] are those of all, once for each
    segmentation."""
    rng = np.random.default_rng(0)
    window = window_of(len(sizes[0]), size) * size
    draws = (sizes[draw % len(sizes)] for draw in range(max(len(sizes), min(_DRAWS, _LOOKED_AT * size // window))))
    parts = [rng.permutation(lengths)[:window] for lengths in draws]
    return np.concatenate([part[balance.deal(part, size, rng)] for part in parts])


def _choose(layouts: Sequence[Layout], width: int) -> Layout:
    """The cheapest layout, or one with little padding that is hardly dearer."""
    best = min(layout.shape.cost(width) for layout in layouts)
    fuller = [item for item in layouts if item.padding <= _PADDING and item.shape.cost(width) <= _DEARER * best]
    return min(fuller or layouts, key=lambda layout: layout.shape.cost(width))


def window_of(texts: int, size: int) -> int:
    """The batches that are dealt at once: those of an epoch, if they are not too many."""
    return max(1, min(_WINDOW, texts // size))
