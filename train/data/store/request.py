"""What a store is made of: sources, their pieces, and what does not change while it is made."""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from train import UserError
from train.data.encoding import Document
from train.data.sources import opening, stream
from train.data.sources.stream import Slice
from train.data.store import layout
from train.settings.schema import Data

# Bytes of input that are one piece of work, so that an interruption costs minutes.
PIECE = 256 << 20


class WorkPiece(NamedTuple):
    """Work for one process: the documents of some files of a source, or of a part of one, in their order.

    name: the beginning of the names of its shards, such as web/00000
    size: bytes of its files
    """

    name: str
    slices: tuple[Slice, ...]
    size: int

    def documents(self, data: Data) -> Iterator[Document]:
        """All documents."""
        return itertools.chain.from_iterable(stream.documents(part, data) for part in self.slices)


@dataclasses.dataclass(frozen=True)
class Request:
    """What decides the bytes of a store, but for its tokenizer.

    sources: the files of each source: path and size
    data: how files are read
    hold_out: the share of documents that are held out for validation
    shard: ids after which a shard ends, at the end of a document
    """

    sources: dict[str, list[tuple[str, int]]]
    data: Data
    hold_out: float
    shard: int

    @classmethod
    def of(cls, data: Data, store: Path, hold_out: float, shard: int) -> Self:
        """The request for the sources that --data names. Raises UserError for a source without files."""
        sources = {name: _files(source) for name, source in _named(data.source, store).items()}
        return cls(sources, data, hold_out, shard)

    @property
    def pieces(self) -> list[WorkPiece]:
        """The work, in the order of the sources and their files."""
        return [piece for name in self.sources for piece in self._pieces(name)]

    def _pieces(self, source: str) -> Iterator[WorkPiece]:
        slices: list[Slice] = []
        size, count = 0, itertools.count()
        for path, file_size in self.sources[source]:
            if file_size > 2 * PIECE and stream.is_cut(path, self.data):
                parts = [Slice(path, start, min(start + PIECE, file_size)) for start in range(0, file_size, PIECE)]
            else:
                parts = [Slice(path)]
            for part in parts:
                slices.append(part)
                size += file_size if part.end is None else part.end - part.start
                if size >= PIECE:
                    yield WorkPiece(f"{source}/{next(count):05d}", tuple(slices), size)
                    slices, size = [], 0
        if slices:
            yield WorkPiece(f"{source}/{next(count):05d}", tuple(slices), size)

    def keep(self, store: Path) -> Self:
        """Writes the request into a new store. Raises UserError where the store was begun with another one."""
        path = store / layout.REQUEST
        if not path.exists():
            with layout.writer(path, replace=False) as file:
                file.write(json.dumps(self._fields(), indent=1).encode())
        before, now = _flat(json.loads(path.read_bytes())), _flat(json.loads(json.dumps(self._fields())))
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                unused = f"remove {store}, which has no text yet, if no job works at it"
                remedy = "choose another --to" if any(store.glob("*/*")) else unused
                raise UserError(
                    f"{store} was begun with {name} {before.get(name)}, and now it is {now.get(name)}; say the same "
                    f"again, or {remedy}"
                )
        return self

    def _fields(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        del fields["data"]["source"]
        return fields


def read(store: Path) -> Request:
    """The request of a store that was begun. Raises UserError where there is none."""
    try:
        fields = json.loads((store / layout.REQUEST).read_bytes())
        sources = {name: [(path, size) for path, size in files] for name, files in fields.pop("sources").items()}
        return Request(sources, Data(**fields.pop("data")), **fields)
    except FileNotFoundError as error:
        raise UserError(f"{store} is no store of tokens; name what to make it of with --data") from error
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{store / layout.REQUEST} is damaged ({error}); choose another --to") from error


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields by names that a sentence can use."""
    files = {f"file {path}": f"of {size} bytes" for paths in fields["sources"].values() for path, size in paths}
    data = {f"data.{name}": value for name, value in fields["data"].items()}
    rest = {name: value for name, value in fields.items() if name not in ("sources", "data")}
    return {"sources": sorted(fields["sources"]), **files, **data, **rest}


def _named(sources: str, store: Path) -> dict[str, str]:
    """The sources of `NAME=SOURCE,NAME=SOURCE`, or of one without a name, which is that of the store."""
    named: dict[str, str] = {}
    for part in sources.split(",") if "=" in sources else [f"{store.name}={sources}"]:
        name, equals, source = part.partition("=")
        if not (equals and source and name.replace("-", "").replace("_", "").isalnum()) or name in named:
            raise UserError(
                f"--data={sources} must be SOURCE, or NAME=SOURCE,NAME=SOURCE with names of letters and digits"
            )
        named[name] = source
    return named


def _files(source: str) -> list[tuple[str, int]]:
    """The files of a source, and their sizes."""
    if source == "builtin" or source.startswith("tfds:"):
        return [(source, 0)]
    return [(file.path, file.size) for file in opening.files_of(source)]


def sample(pieces: Sequence[WorkPiece], data: Data, characters: int) -> Iterator[str]:
    """The first documents of some pieces, which lie evenly among all: so many characters together."""
    chosen = [pieces[index * len(pieces) // min(len(pieces), 64)] for index in range(min(len(pieces), 64))]
    for piece in chosen:
        left = characters // len(chosen)
        for document in piece.documents(data):
            text = "".join(itertools.islice(document, max(1, left >> 20)))
            yield text
            left -= len(text)
            if left <= 0:
                break
