"""Shards of tokens: each is written beside its name, and is complete when its facts are there."""

import collections
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from train.data.encoding import Document, encode_documents
from train.data.processors import TOKENIZER
from train.data.sources import stream
from train.data.store import layout
from train.data.store.layout import PARTS, Shard
from train.data.store.plans import RowShape, add_plans, plan_shard
from train.data.store.request import Request, WorkPiece
from train.text import control_tokens
from train.text.special import AnyTokenizer, DocumentMarks, document_marks


class PieceProgress(NamedTuple):
    """How far a piece is: its shards, the documents that they have read of its files, and whether these were all."""

    shards: int
    documents: int
    is_complete: bool


def progress(store: Path, piece: WorkPiece) -> tuple[PieceProgress, list[dict[str, Any]]]:
    """How far a piece is, and the facts of its shards."""
    facts: list[dict[str, Any]] = []
    while (path := store / f"{shard_name(piece, len(facts))}.json").exists():
        facts.append(json.loads(path.read_bytes()))
    documents = facts[-1]["read"] if facts else 0
    return PieceProgress(len(facts), documents, bool(facts) and facts[-1]["last"]), facts


def shard_name(piece: WorkPiece, index: int) -> str:
    """The name of a shard of a piece."""
    return f"{piece.name}-{index:03d}"


def id_type(tokenizer: AnyTokenizer) -> str:
    """The type of an id in a store."""
    return "uint16" if tokenizer.get_vocab_size() <= 1 << 16 else "uint32"


def prepare_piece(store: Path, piece: WorkPiece, request: Request, shapes: list[RowShape]) -> None:
    """Makes the shards of a piece that are not complete, and the plans of rows that these lack. The bytes do not depend
    on what was there before."""
    tokenizer = _tokenizer(store, (store / TOKENIZER.files[0]).stat().st_mtime_ns)
    marks, dtype = document_marks(tokenizer), id_type(tokenizer)
    before, _ = progress(store, piece)
    for index in range(before.shards):
        add_plans(store, shard_name(piece, index), shapes, marks)
    if before.is_complete:
        return
    documents = itertools.islice(piece.documents(request.data), before.documents, None)
    queue = _Queue(documents, request.hold_out, before.documents)
    with control_tokens.reading(request.data.control_tokens), contextlib.ExitStack() as stack:
        index, shard = before.shards, _ShardWriter(store, shard_name(piece, before.shards), dtype, marks, stack)
        for encoded in encode_documents(tokenizer, queue.documents()):
            document = queue.taken[0]
            shard.write(encoded.ids, document.part)
            if encoded.is_last:
                queue.taken.popleft()
                shard.end_document(document)
                if shard.ids >= request.shard:
                    shard.close(shapes, document.read, last=False)
                    index += 1
                    shard = _ShardWriter(store, shard_name(piece, index), dtype, marks, stack)
        shard.close(shapes, queue.read, last=True)


@functools.lru_cache(maxsize=1)
def _tokenizer(store: Path, written: int) -> AnyTokenizer:
    """The tokenizer of a store, which a process reads once for all pieces; `written`: when the file was."""
    return layout.read_tokenizer(store)


@dataclasses.dataclass
class _Document:
    """A document that the tokenizer takes: its part, the bytes of its text so far, and the documents read with it."""

    part: str
    bytes: int
    read: int


class _Queue:
    """Documents on their way to the tokenizer.

    read: documents that were read, also those without text
    taken: those that the tokenizer has taken, and has not given back
    """

    def __init__(self, documents: Iterator[Document], hold_out: float, read: int):
        self._documents, self._hold_out, self.read = documents, hold_out, read
        self.taken: collections.deque[_Document] = collections.deque()

    def documents(self) -> Iterator[Document]:
        """The documents that have text."""
        return map(self._followed, stream.with_text(self._counted(), lambda: None))

    def _counted(self) -> Iterator[Document]:
        for document in self._documents:
            self.read += 1
            yield document

    def _followed(self, document: Document) -> Iterator[str]:
        taken: _Document | None = None
        for chunk in document:
            if taken is None:
                taken = _Document(part_of(chunk, self._hold_out), 0, self.read)
                self.taken.append(taken)
            taken.bytes += len(chunk) if chunk.isascii() else len(chunk.encode("utf-8", "surrogatepass"))
            yield chunk


def part_of(start: str, hold_out: float) -> str:
    """The part of a document that begins with this text: held out, or not, by a hash of it."""
    if not hold_out:
        return "train"
    digest = hashlib.sha256(start.encode("utf-8", "surrogatepass")).digest()
    return "valid" if int.from_bytes(digest[:8], "big") < hold_out * 2**64 else "train"


class _ShardWriter:
    """The files of a shard, whose names they take when it is closed.

    ids: how many there are so far
    """

    def __init__(self, store: Path, name: str, dtype: str, marks: DocumentMarks, stack: contextlib.ExitStack):
        self._store, self._name, self._marks, self._stack = store, name, marks, stack
        self._dtype, self.ids = np.dtype(dtype).newbyteorder("<"), 0
        self._parts: dict[str, _PartWriter] = {}

    def write(self, ids: np.ndarray, part: str) -> None:
        """A piece of a document of this part."""
        if part not in self._parts:
            path = self._store / f"{self._name}{PARTS[part]}.bin"
            self._parts[part] = _PartWriter(self._stack.enter_context(layout.writer(path)), self._marks, self._dtype)
        self.ids += self._parts[part].write(ids)

    def end_document(self, document: _Document) -> None:
        """The document is complete."""
        self.ids += self._parts[document.part].end_document(document.bytes)

    def close(self, shapes: list[RowShape], read: int, last: bool) -> None:
        """Makes the shard complete: all files, and then its facts."""
        self._stack.close()
        parts = {}
        for part, written in sorted(self._parts.items()):
            name = f"{self._name}{PARTS[part]}"
            with layout.writer(self._store / f"{name}.ends") as file:
                file.write(np.array(written.ends, "<u8").tobytes())
            crc = {ending: layout.checksums(self._store / f"{name}{ending}") for ending in (".bin", ".ends")}
            shard = Shard(name, written.ids, len(written.ends), written.bytes, crc)
            for shape in shapes:
                shard = plan_shard(self._store, shard, self._marks, shape)
            parts[part] = dataclasses.asdict(shard)
        with layout.writer(self._store / f"{self._name}.json") as file:
            file.write(json.dumps({"parts": parts, "read": read, "last": last}).encode())


class _PartWriter:
    """The .bin of a part of a shard: where documents end, and how many ids and bytes of text it has."""

    def __init__(self, file: IO[bytes], marks: DocumentMarks, dtype: np.dtype):
        self._file, self._marks, self._dtype = file, marks, dtype
        self.ends, self.ids, self.bytes, self._is_between = array("Q"), 0, 0, True

    def write(self, ids: np.ndarray) -> int:
        """Appends a piece of a document, after the mark before it; returns how many ids that are."""
        before = self.ids
        if self._is_between and (not self.ids or self._marks.first != self._marks.last):
            self._append(np.array([self._marks.first]))
        self._is_between = False
        self._append(ids)
        return self.ids - before

    def end_document(self, size: int) -> int:
        """Appends the mark behind a document of so many bytes; returns how many ids that are."""
        self.ends.append(self.ids)
        self._append(np.array([self._marks.last]))
        self.bytes, self._is_between = self.bytes + size, True
        return 1

    def _append(self, ids: np.ndarray) -> None:
        self._file.write(ids.astype(self._dtype).tobytes())
        self.ids += len(ids)
