"""Tokens of a store, mapped into memory: any piece and any row is read by itself, and nothing else."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from train import UserError
from train.data import packing
from train.data.packing import PlannedPieces
from train.data.store.layout import Shard, ShardPlan
from train.data.store.mapped import MappedFiles
from train.data.store.plans import RowShape, spans_of
from train.text.special import DocumentMarks


class StoredShard(NamedTuple):
    """A part of a shard in its store."""

    store: Path
    shard: Shard

    def path(self, ending: str) -> str:
        """The path of one of its files."""
        return f"{self.store}/{self.shard.file}{ending}"


class StoredTokens:
    """The ids of shards, one behind the other, as `train.data.tokens.DocumentTokens` has them.

    marked: documents are read with the marks around them, as a language model reads them
    """

    def __init__(self, shards: Sequence[StoredShard], dtype: str, marks: DocumentMarks, marked: bool):
        self.shards, self.dtype, self.marks, self.marked = shards, f"<{np.dtype(dtype).str[1:]}", marks, marked
        sizes = [item.shard.ids for item in shards]
        self.starts_of_shards = np.cumsum([0, *sizes])[:-1]
        self._num_ids = sum(sizes)
        self.files = MappedFiles()

    @property
    def ids(self) -> "_JoinedIds":
        return _JoinedIds(self, self._num_ids)

    @property
    def counted(self) -> "_Counted | None":
        return None if self.marks.first == self.marks.last or not self.marked else _Counted(self)

    @property
    def num_documents(self) -> int:
        """The documents of all shards."""
        return sum(item.shard.documents for item in self.shards)

    @property
    def num_bytes(self) -> int:
        """The UTF-8 bytes of their texts."""
        return sum(item.shard.bytes for item in self.shards)

    @property
    def num_tokens(self) -> int:
        width = 1 if self.marks.first == self.marks.last else 2
        return self._num_ids - len(self.shards) - (0 if self.marked else self._inner_marks(width))

    @property
    def num_targets(self) -> int:
        is_first = self.marked and self.marks.first != self.marks.last
        return self.num_tokens - (self.num_documents - len(self.shards) if is_first else 0)

    def _inner_marks(self, width: int) -> int:
        """The marks of all shards without the last one of each."""
        return self.num_documents * width - (width - 1) * len(self.shards)

    def read(self, starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        ids = np.empty(int(sizes.sum()), self.dtype)
        self.write(ids, np.cumsum(sizes) - sizes, starts, sizes)
        return ids

    def write(self, row: np.ndarray, places: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> None:
        shard = self.shard_of(starts)
        ids = {index: self.shard_ids(index) for index in np.unique(shard).tolist()}
        if self.files.is_read(".bin"):
            self._fetch(shard, starts, sizes)
        first = starts - self.starts_of_shards[shard]
        pieces = (shard, places, first, sizes)
        for index, place, start, size in zip(*(column.tolist() for column in pieces), strict=True):
            row[place : place + size] = ids[index][start : start + size]

    def _fetch(self, shard: np.ndarray, starts: np.ndarray, sizes: np.ndarray) -> None:
        """Has the pages of pieces read, all at once."""
        width = np.dtype(self.dtype).itemsize
        for index in np.unique(shard):
            is_here = shard == index
            first = starts[is_here] - self.starts_of_shards[index]
            self.files.fetch(self.shards[index].path(".bin"), first * width, sizes[is_here] * width)

    def shard_of(self, places: np.ndarray) -> np.ndarray:
        """The shard of each place."""
        return np.searchsorted(self.starts_of_shards, places, side="right") - 1

    def shard_ids(self, index: int) -> np.ndarray:
        """The ids of a shard."""
        return self.files.array(self.shards[index].path(".bin"), self.dtype)

    def shard_ends(self, index: int) -> np.ndarray:
        """Where the documents of a shard end."""
        return self.files.array(self.shards[index].path(".ends"), "<u8")

    def spans(self, joined: bool) -> np.ndarray:
        if joined:
            sizes = np.array([item.shard.ids for item in self.shards])
            return np.stack([self.starts_of_shards, self.starts_of_shards + sizes - 1], 1)
        return np.concatenate([np.zeros((0, 2), np.int64), *map(self._document_spans, range(len(self.shards)))])

    def _document_spans(self, index: int) -> np.ndarray:
        starts, lengths = spans_of(self.shard_ends(index), self.marks, self.marked)
        return self.starts_of_shards[index] + np.stack([starts, starts + lengths], 1)

    def split(self) -> Iterator[np.ndarray]:
        for index in range(len(self.shards)):
            ids, first = self.shard_ids(index), self.starts_of_shards[index]
            yield from (ids[start - first : end - first] for start, end in self._document_spans(index))

    def plan(self, length: int, pack: bool, special_tokens: int) -> "StoredPlan":
        """The rows that `train.prepare` has planned. Raises UserError where it has not."""
        shape = RowShape(length, special_tokens, pack)
        if lacking := next((item for item in self.shards if shape.ending not in item.shard.plans), None):
            alone = "" if pack else " --pack=false"
            raise UserError(
                f"{lacking.store} has no plan of rows of {length} tokens; make one with python -m train.prepare "
                f"--to={lacking.store} --length={length}{alone}"
            )
        return StoredPlan(self, shape)


class _PlanArrays(NamedTuple):
    """Of a shard, where the pieces of each row begin among all, [R+1], and where each starts and its size, [N]."""

    bounds: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray


class StoredPlan:
    """Packed rows of the shards of a text, in their order; see `train.data.packing.PackingPlan`."""

    def __init__(self, text: StoredTokens, shape: RowShape):
        self._text, self._shape = text, shape
        self.length, self.special_tokens = shape.length, shape.special_tokens
        self._plans: list[ShardPlan] = [item.shard.plans[shape.ending] for item in text.shards]
        sizes = [plan.rows for plan in self._plans]
        self._ends = np.cumsum(sizes)
        self._firsts = self._ends - sizes

    @property
    def rows(self) -> int:
        return int(self._ends[-1])

    @property
    def padding(self) -> float:
        pieces, tokens = (sum(counts) for counts in zip(*((p.pieces, p.tokens) for p in self._plans), strict=True))
        return packing.padding(self.rows, pieces, tokens, self)

    def pieces(self, rows: np.ndarray) -> PlannedPieces:
        shard = np.searchsorted(self._ends, rows, side="right")
        places = np.where(rows < 0, -1, rows - self._firsts[shard])
        arrays = {index: self._arrays(index) for index in np.unique(shard).tolist()}
        if is_read := self._text.files.is_read(self._shape.ending):
            for index in arrays:
                self._fetch(index, 8 * places[(shard == index) & (rows >= 0)], 16)
        bounds = np.zeros((len(rows), 2), np.int64)
        for row, (index, place) in enumerate(zip(shard.tolist(), places.tolist(), strict=True)):
            if place >= 0:
                bounds[row] = arrays[index].bounds[place : place + 2]
        counts = bounds[:, 1] - bounds[:, 0]
        if is_read:
            for index in arrays:
                self._fetch_pieces(index, bounds[shard == index, 0], counts[shard == index])
        starts, sizes = np.empty((2, int(counts.sum())), np.int64)
        offset = 0
        for index, (first, end) in zip(shard.tolist(), bounds.tolist(), strict=True):
            of_row = slice(offset, offset := offset + end - first)
            starts[of_row], sizes[of_row] = arrays[index].starts[first:end], arrays[index].sizes[first:end]
        return PlannedPieces(counts, starts + np.repeat(self._text.starts_of_shards[shard], counts), sizes)

    def _fetch(self, index: int, starts: np.ndarray, sizes: np.ndarray | int) -> None:
        """Has bytes of the plan of a shard read."""
        self._text.files.fetch(self._text.shards[index].path(self._shape.ending), starts, sizes)

    def _fetch_pieces(self, index: int, firsts: np.ndarray, counts: np.ndarray) -> None:
        """Has starts and sizes of these pieces of a shard read."""
        plan = self._plans[index]
        behind = 8 * (plan.rows + 1)
        self._fetch(index, behind + 8 * firsts, 8 * counts)
        self._fetch(index, behind + 8 * plan.pieces + 4 * firsts, 4 * counts)

    def _arrays(self, index: int) -> "_PlanArrays":
        """The plan of a shard."""
        plan, path = self._plans[index], self._text.shards[index].path(self._shape.ending)
        files, behind = self._text.files, 8 * (plan.rows + 1)
        return _PlanArrays(
            files.array(path, "<u8", 0, plan.rows + 1),
            files.array(path, "<u8", behind, plan.pieces),
            files.array(path, "<u4", behind + 8 * plan.pieces, plan.pieces),
        )


class _JoinedIds:
    """The ids of shards by place: one, a slice, or those of an array of places."""

    def __init__(self, text: StoredTokens, size: int):
        self._text, self._size = text, size

    def __len__(self):
        return self._size

    def __getitem__(self, places: Any) -> Any:
        if isinstance(places, slice):
            first, end, step = places.indices(self._size)
            return self[np.arange(first, end, step)]
        array = np.asarray(places, np.int64)
        return self._text.read(array.ravel(), np.ones(array.size, np.int64)).reshape(array.shape)[()]


class _Counted:
    """Whether ids count as targets: all do but the first of a document, where another mark ends the one before it."""

    def __init__(self, text: StoredTokens):
        self._text = text

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        counted, shard = np.ones(len(places), bool), self._text.shard_of(places)
        for index in np.unique(shard):
            is_here, ends = shard == index, self._text.shard_ends(int(index))
            local = places[is_here] - self._text.starts_of_shards[index]
            before = np.searchsorted(ends, local, side="left") - 1  # the document whose end may be one place before
            follows = ends[np.maximum(before, 0)].astype(np.int64) + 1 == local
            counted[is_here] = ~((follows & (before >= 0)) | (local == 0))
        return counted
