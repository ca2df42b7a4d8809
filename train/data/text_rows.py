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
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from train.data import balance
from train.data.fields import Field
from train.data.tokens import ranges


def fields(texts: int = 1) -> dict[str, Field]:
    """What a batch of examples of so many texts has beside the fields of its task."""
    by_token = dict.fromkeys(("segments", "positions"), Field("BT", np.int32, rows=texts))
    return {**by_token, "rows": Field("B", np.int32)}


class TextFields(NamedTuple):
    """What the rows of a task say of its fields, and of its outcomes.

    by_token: those with a value for every token of a text
    by_place: those that hold a place in a text; 0 where there is no text
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


# How texts come to batches: at random; so that all have as many tokens; or so that those of one are of similar lengths.
Dealt = Literal["shuffled", "even", "alike"]


@dataclasses.dataclass(frozen=True)
class Layout:
    """How batches of `size` examples lie in rows.

    longest: the most tokens that an example may have
    tokens: those of a batch on average
    dealt: how examples come to batches
    shorter: lengths that rows have where those of a batch need no more, ascending
    mean_length: that of rows on average; none: the shape's
    reason: why each text has a row
    """

    size: int
    shape: Shape
    longest: int
    tokens: float
    dealt: Dealt = "even"
    shorter: tuple[int, ...] = ()
    mean_length: float | None = None
    reason: str = ""

    def __str__(self):
        rows = f"{self.shape.rows} rows of {self.row_lengths}"
        return f"{self.size} texts of {self.tokens:,.0f} tokens on average, in {rows}"

    @property
    def row_lengths(self) -> str:
        """The lengths of rows as the start-up table says them."""
        shorter = ", ".join(map(str, self.shorter))
        return f"{shorter} or {self.shape.length}" if shorter else str(self.shape.length)

    @property
    def padding(self) -> float:
        """Share of places that hold no token."""
        return 1 - self.tokens / (self.shape.rows * (self.mean_length or self.shape.length))

    @property
    def packs(self) -> bool:
        """Whether texts share rows."""
        return self.shape.slots > 1

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths that rows may have, ascending. The last one has room for any texts."""
        if self.packs:
            return self.shape.length, max(self.shape.length, self.shape.slots * self.longest)
        return *self.shorter, self.shape.length

    def shape_of(self, field: Field) -> tuple[int, ...]:
        """The shape of a field in a batch."""
        rows, slots, length = self.shape
        examples = rows * slots if self.packs else self.size
        return field._replace(rows=1).shape(rows if "T" in field.axes else examples, length)

    def of_length(self, length: int) -> "Layout":
        """The layout whose rows have one of these lengths."""
        return dataclasses.replace(self, shape=self.shape._replace(length=length), shorter=())

    def examples(self, rows: np.ndarray, sizes: np.ndarray) -> Iterator[tuple["Layout", np.ndarray]]:
        """For each length of rows the layout that has it, and the examples, -1 for one that does not fit.

        rows, sizes: the numbers of the examples of a batch, and the tokens of their texts, [places] or [places,n]
        """
        needed = sizes.reshape(len(rows), -1).max(1)
        for length in self.lengths:
            yield self.of_length(length), rows if self.packs else np.where(needed <= length, rows, -1)

    def deal(self, lengths: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """lengths [N] of the examples of complete batches -> the example in every place of each, int [E,places], or
        -1, in random order."""
        if self.dealt == "alike":
            return balance.deal_alike(lengths, self.size, rng)
        members = balance.deal(lengths, self.size, rng)
        if not self.packs:
            return members
        seats = balance.share(lengths[members], self.shape.rows, self.shape.slots).reshape(len(members), -1)
        return np.where(seats < 0, -1, np.take_along_axis(members, seats, axis=1))

    def fitted(self, lengths: np.ndarray) -> "Layout":
        """The layout whose shared rows are as long as before, or as long as the examples of these lengths [E,places] in
        their places need."""
        longest = int(lengths.reshape(-1, self.shape.slots).sum(1).max(initial=1))
        return self.of_length(max(self.shape.length, longest)) if self.packs else self

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
        fullest = sizes.sum(1).max(initial=0)
        shape = self.shape._replace(length=next(length for length in self.lengths if fullest <= length))
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
                batch[name] = np.where(sizes.ravel() > 0, field + firsts, 0).astype(field.dtype)
            else:
                batch[name] = field
        del batch["valid"]
        segments, positions = np.zeros((2, shape.rows * shape.length), np.int32)
        segments[places] = np.repeat(np.arange(sizes.size) % sizes.shape[1] + 1, sizes.ravel())
        positions[places] = ranges(np.zeros_like(firsts), sizes.ravel())
        layout = {"segments": segments, "positions": positions}
        in_rows = {name: field.reshape(shape.rows, shape.length) for name, field in layout.items()}
        return batch | in_rows | {"rows": rows.astype(np.int32)}


def lengths_of(rows_of_task: Sequence[Any]) -> list[np.ndarray]:
    """The tokens of every example, once for each segmentation."""
    return [rows.sizes.reshape(len(rows.sizes), -1).sum(1) for rows in rows_of_task]


def sizes_of(sizes: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The tokens of these examples, or of each of their texts; 0 of row -1."""
    chosen = sizes[rows]
    chosen[rows < 0] = 0
    return chosen


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
    return fields | {name: (batch[name] - firsts.ravel()).astype(batch[name].dtype) for name in names.by_place}


def examples_of(batch: Mapping[str, np.ndarray], texts: int = 1) -> np.ndarray:
    """The example, in the order of `rows`, that each place of a batch of examples of so many `texts` is of, int
    [rows,T]; -1 in padding."""
    segments = batch["segments"]
    count = len(batch["rows"]) * texts // len(segments)
    numbers = np.arange(len(segments))[:, None] * count + segments - 1
    return np.where(segments > 0, numbers // texts, -1)


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
