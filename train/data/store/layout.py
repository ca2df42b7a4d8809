"""What a store is on disk. Everything in it takes its name when it is complete.

STORE/tokenizer.json              the tokenizer, as a run folder has it
STORE/request.json                what the store is made of, and how
STORE/web/00000-000.bin           ids of documents, little-endian, a mark before the first and behind each of them
STORE/web/00000-000.ends          where each document ends, uint64: the place of the mark behind it
STORE/web/00000-000.rows-128-2    a plan of packed rows (`plans`)
STORE/web/00000-000.valid.bin     the same of the documents that are held out for validation
STORE/web/00000-000.json          the facts of this shard: it is complete
STORE/manifest.json               the facts of all shards: the store is complete
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from train import UserError
from train.data.processors import TOKENIZER
from train.files import checksum, liveness
from train.text.special import AnyTokenizer, DocumentMarks

FORMAT = 1
MANIFEST, REQUEST = "manifest.json", "request.json"

# The parts of a source, and what stands between the name of a shard and the endings of its files.
PARTS = {"train": "", "valid": ".valid"}

# Begins the names of files that are not complete.
UNFINISHED = ".part-"


@dataclasses.dataclass(frozen=True)
class ShardPlan:
    """A plan of rows of a shard: how many rows, pieces and tokens in pieces it has, and the checksums of its file."""

    rows: int
    pieces: int
    tokens: int
    crc: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Shard:
    """The facts of a part of a shard.

    file: the path of its files in the store, without their endings
    ids: the ids in its .bin, marks among them
    documents: documents in it
    bytes: the UTF-8 bytes of their texts
    crc: the checksums of the pieces of its files, by their endings
    plans: its plans, by the ending of their files
    """

    file: str
    ids: int
    documents: int
    bytes: int
    crc: Mapping[str, Sequence[str]]
    plans: Mapping[str, ShardPlan] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Self:
        """The shard of an object of JSON."""
        plans = {ending: ShardPlan(**plan) for ending, plan in fields["plans"].items()}
        return cls(**{**fields, "plans": plans})

    def sizes(self, itemsize: int) -> dict[str, int]:
        """The bytes of its files, by their endings."""
        sizes = {".bin": self.ids * itemsize, ".ends": 8 * self.documents}
        return sizes | {ending: plan_bytes(plan.rows, plan.pieces) for ending, plan in self.plans.items()}


def plan_ending(length: int, special_tokens: int, pack: bool) -> str:
    """The ending of the file of a plan."""
    return f".{'rows' if pack else 'alone'}-{length}-{special_tokens}"


def plan_bytes(rows: int, pieces: int) -> int:
    """The bytes of the file of a plan: bounds uint64 [rows + 1], starts uint64 [pieces], sizes uint32 [pieces]."""
    return 8 * (rows + 1) + 12 * pieces


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The facts of a store.

    dtype: the type of an id, uint16 or uint32
    marks: the ids before a document and behind it; where they are one, it stands between documents
    tokenizer: the fingerprint of the tokenizer
    control_tokens: how control tokens in texts were read
    sources: the shards of each part of each source, by the names of source and part
    """

    dtype: str
    marks: Sequence[int]
    tokenizer: str
    control_tokens: str
    sources: Mapping[str, Mapping[str, Sequence[Shard]]]

    @property
    def itemsize(self) -> int:
        """The bytes of an id."""
        return np.dtype(self.dtype).itemsize

    @property
    def document_marks(self) -> DocumentMarks:
        """The marks by their names."""
        return DocumentMarks(*self.marks)

    @property
    def digest(self) -> str:
        """A hash of all texts, by the checksums of their ids; further plans do not change it."""
        shards = [
            (source, part, shard.ids, shard.crc)
            for source, parts in sorted(self.sources.items())
            for part, shards in sorted(parts.items())
            for shard in shards
        ]
        text = json.dumps([self.dtype, self.marks, self.tokenizer, shards], sort_keys=True, default=dict)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_store(source: str) -> bool:
    """Whether a source is a store, or the names of several ones, joined by commas."""
    return all(name and Path(name, REQUEST).is_file() for name in source.split(","))


def read_manifest(store: Path) -> Manifest:
    """The manifest of a store. Raises UserError where it is absent, damaged, or where a file is not as large as it
    says."""
    path = store / MANIFEST
    if not path.exists():
        raise UserError(f"{store} is not complete: it has no {MANIFEST}; run train.prepare --to={store} again")
    try:
        fields = json.loads(path.read_bytes())
        if fields.pop("format") != FORMAT:
            raise UserError(f"{store} was made by another version; make it again with python -m train.prepare")
        sources = fields.pop("sources")
        shards = {
            source: {part: [Shard.of(shard) for shard in shards] for part, shards in parts.items()}
            for source, parts in sources.items()
        }
        manifest = Manifest(**fields, sources=shards)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(f"{path} is damaged ({error}); remove it, and run train.prepare again") from error
    _check_sizes(store, manifest)
    return manifest


def write_manifest(store: Path, manifest: Manifest) -> None:
    """Makes the store complete."""
    with writer(store / MANIFEST) as file:
        file.write(json.dumps({"format": FORMAT, **dataclasses.asdict(manifest)}).encode())


def _check_sizes(store: Path, manifest: Manifest) -> None:
    """Raises UserError for a file that is absent, or has another size. No file is opened."""
    for source, parts in manifest.sources.items():
        sizes = {entry.name: entry.stat().st_size for entry in os.scandir(store / source)} if parts else {}
        for shard in (shard for shards in parts.values() for shard in shards):
            for ending, size in shard.sizes(manifest.itemsize).items():
                name = f"{Path(shard.file).name}{ending}"
                if sizes.get(name) != size:
                    fault = f"has {sizes[name]:,} bytes in place of {size:,}" if name in sizes else "is missing"
                    raise UserError(
                        f"{store / source / name} {fault}; restore it, or make it again with python -m train.prepare "
                        f"--to={store}"
                    )


@contextlib.contextmanager
def writer(path: Path, replace: bool = True) -> Iterator[IO[bytes]]:
    """A file that takes its name when it is complete, and on the disk. Without `replace` one that is there stays."""
    part = path.with_name(f"{UNFINISHED}{socket.gethostname()}-{os.getpid()}-{path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with part.open("wb", buffering=1 << 20) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(part, path)
        else:
            with contextlib.suppress(FileExistsError):
                os.link(part, path)
        folder = os.open(path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    finally:
        part.unlink(missing_ok=True)


def write_tokenizer(store: Path, tokenizer: AnyTokenizer) -> None:
    """Writes the files of a tokenizer; that of the first process stays."""
    for name, text in sorted(TOKENIZER.contents(tokenizer).items(), reverse=True):
        with writer(store / name, replace=False) as file:
            file.write(text.encode())


def read_tokenizer(store: Path) -> AnyTokenizer:
    """The tokenizer of a store. Raises UserError where it is damaged."""
    paths = [store / name for name in TOKENIZER.files if (store / name).exists()]
    if not paths or paths[0].name != TOKENIZER.files[0]:
        raise UserError(f"{store} has no {TOKENIZER.files[0]}; restore it")
    try:
        return TOKENIZER.read(*paths)
    except ValueError as error:
        raise UserError(f"{paths[0]} is damaged ({error}); restore it") from error


def checksums(path: Path) -> list[str]:
    """The checksums of the pieces of a file."""
    return checksum.of_pieces(checksum.pieces(path))


def damaged_files(store: Path, shard: Shard) -> Iterator[Path]:
    """The files of a shard that are absent, or are not as they were written."""
    crc = {**shard.crc, **{ending: plan.crc for ending, plan in shard.plans.items()}}
    for ending, expected in crc.items():
        path = store / f"{shard.file}{ending}"
        if not path.exists() or checksums(path) != list(expected):
            yield path


def remove_unfinished(store: Path) -> None:
    """Removes what processes of this machine have left behind that were killed."""
    host = socket.gethostname()
    for path in store.rglob(f"{UNFINISHED}{host}-*"):
        process = int(path.name.removeprefix(f"{UNFINISHED}{host}-").partition("-")[0])
        if liveness.is_gone(process):
            path.unlink(missing_ok=True)
