"""A store of tokens from text of any size: `python -m train.prepare --data=SOURCES --to=STORE`."""

from train import interruption

if __name__ == "__main__":
    interruption.install()

import dataclasses
import functools
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tfm.options.choices import check_fields, check_maximum, check_minimum
from train import UserError, exit_code
from train.settings import flags
from train.settings.text import Data, Tokenizer

if TYPE_CHECKING:
    from train.data.store.layout import Manifest
    from train.data.store.plans import RowShape
    from train.data.store.request import Request, WorkPiece
    from train.screens.console import Log
    from train.text.special import AnyTokenizer

USAGE = """usage: python -m train.prepare --data=SOURCES --to=STORE [--tokenizer.kind=KIND | --init=FOLDER]

Makes a store of tokens, on which train.main trains with --data=STORE: no process reads or holds the text. SOURCES is
builtin, tfds:NAME, a path, URL or quoted glob of .txt .jsonl .csv .tsv .parquet .arrow .tfrecord .array_record .tar
files, all but .parquet and .arrow also as .gz .zst .bz2 .xz, or NAME=SOURCE,NAME=SOURCE. After an interruption it goes
on where it was. Flags and defaults:"""

ALIASES = {"data": "data.source"}

# Seconds between two lines about the progress.
_PATIENCE = 20

# What of the section `data` says how text is read.
_OF_READING = tuple(f"data.{name}" for name in ("source", "field", "header", "split", "format", "control_tokens"))


@dataclasses.dataclass(frozen=True)
class Dask:
    """The cluster of --runner=dask.

    scheduler: its address, such as tcp://host:8786; empty: workers of this machine
    """

    scheduler: str = ""

    def __post_init__(self):
        check_fields(self)


@dataclasses.dataclass(frozen=True)
class PrepareOptions:
    """What to make, and who makes it.

    to: the folder of the store
    init: a run folder, or one of transformers, that training will start from: its tokenizer is used
    length: the lengths of packed rows that are planned, joined by commas; more can be planned later
    pack: pieces of documents share rows; false: each has one, as --data.pack=false asks
    hold_out: the share of documents that are held out for validation
    sample: characters of the texts that a tokenizer is trained on
    shard: ids after which a shard ends, at the end of a document
    workers: processes that work side by side; none: as many as cores, and pieces of work
    part: i/n: work at every n-th piece, from the i-th of 1 to n on, as one of n jobs; empty: all
    runner: local | here | dask: processes of this machine | this process alone | workers of Dask
    verify: read all shards that are there, compare their checksums, and make damaged ones again
    """

    to: str = ""
    init: str = ""
    length: str = "128,1024"
    pack: bool = True
    hold_out: float = 0.01
    sample: int = 50_000_000
    shard: int = 1 << 27
    workers: int | None = None
    part: str = ""
    runner: Literal["local", "here", "dask"] = "local"
    verify: bool = False
    data: Data = Data(source="")
    tokenizer: Tokenizer = Tokenizer()
    dask: Dask = Dask()

    def __post_init__(self):
        check_fields(self)
        check_minimum(self, sample=1, shard=1, workers=1)
        check_maximum(self, "no machine has as many cores", workers=4096)
        if not 0 <= self.hold_out < 1:
            raise ValueError(f"hold_out={self.hold_out} must be from 0 to less than 1; 0.01 is usual")
        lengths = self.length.split(",")
        if not all(length.isdigit() and 8 <= int(length) <= 1 << 20 for length in lengths):
            raise ValueError(f"length={self.length} must be numbers from 8 to {1 << 20:,}, joined by commas")
        first, _, count = self.part.partition("/")
        if self.part and not (first.isdigit() and count.isdigit() and 1 <= int(first) <= int(count)):
            raise ValueError(f"part={self.part} must be i/n with i from 1 to n")
        if self.tokenizer.dropout:
            raise ValueError(f"tokenizer.dropout={self.tokenizer.dropout} needs text; a store has one segmentation")

    @property
    def shapes(self) -> "list[RowShape]":
        """The rows to plan, with and without special tokens around pieces."""
        from train.data.store.plans import RowShape

        return [RowShape(int(length), special, self.pack) for length in self.length.split(",") for special in (2, 0)]

    def own(self, pieces: "Sequence[WorkPiece]") -> "Sequence[WorkPiece]":
        """The pieces of this job."""
        first, _, count = self.part.partition("/")
        return pieces[int(first) - 1 :: int(count)] if self.part else pieces


def main(argv=None) -> int:
    """The command; returns its exit code."""
    return exit_code(prepare, argv)


def prepare(argv):
    """Makes the store: request, tokenizer, shards, manifest."""
    if not {"--help", "-h"}.isdisjoint(argv):
        chosen = [flag for flag in flags.flags_of(PrepareOptions()) if _is_read(flag.name)]
        return print(flags.format_help(USAGE, chosen, ALIASES))
    texts = flags.parse(argv, ALIASES)
    if foreign := [text.flag for name, text in texts.items() if not _is_read(name) and name in _data_names()]:
        raise UserError(f"--{foreign[0]} is not for a store, which holds plain text; leave it out")
    options = flags.build(PrepareOptions, texts, aliases=ALIASES)
    if not options.to:
        raise UserError("say where to make the store with --to=FOLDER")

    from train.data.store import request
    from train.screens.console import Log

    store, log = Path(options.to), Log()
    if options.data.source:
        asked = request.Request.of(options.data, store, options.hold_out, options.shard).keep(store)
    else:
        asked = request.read(store)
    _tokenizer(options, store, asked, log)
    _work(options, store, asked, log)
    _finish(store, asked, log)
    return None


def _is_read(name: str) -> bool:
    """Whether a flag is one of this command."""
    return name not in _data_names() or name in _OF_READING


def _data_names() -> set[str]:
    return {f"data.{field.name}" for field in dataclasses.fields(Data)}


def _tokenizer(options: PrepareOptions, store: Path, request: "Request", log: "Log") -> None:
    """Writes the tokenizer into a new store. Raises UserError where the store has another one than the flags say."""
    from train.data.store import layout
    from train.data.store.writing import part_of
    from train.text import tokenize

    is_there = (store / "tokenizer.json").exists()
    if options.init:
        from train.runs.run_folder import open_folder

        tokenizer: AnyTokenizer = open_folder(options.init).processor
    elif options.tokenizer.path:
        tokenizer = tokenize.load(options.tokenizer, [], log)
    elif is_there:
        return
    else:
        from train.data.store.request import sample

        texts = [
            text
            for text in sample(request.pieces, request.data, options.sample)
            if text.strip() and part_of(text, request.hold_out) == "train"
        ]
        tokenizer = tokenize.load(options.tokenizer, texts, log)
    if not is_there:
        layout.write_tokenizer(store, tokenizer)
    kept = tokenize.fingerprint(layout.read_tokenizer(store))
    if (options.init or options.tokenizer.path) and kept != tokenize.fingerprint(tokenizer):
        name = options.init or options.tokenizer.path
        raise UserError(
            f"{store} has another tokenizer ({kept}) than {name} ({tokenize.fingerprint(tokenizer)}); choose another "
            "--to, or leave the flag out"
        )


def _work(options: PrepareOptions, store: Path, request: "Request", log: "Log") -> None:
    """Makes the shards that are not complete, and shows how far the work is."""
    from train.data.store import runners, writing
    from train.screens.console import human_bytes

    pieces = options.own(request.pieces)
    lost = _verify(store, pieces, log) if options.verify else []
    shapes = list(dict.fromkeys([*options.shapes, *lost]))
    work = functools.partial(writing.prepare_piece, store, request=request, shapes=shapes)
    in_this_process = options.runner == "here"
    workers = 1 if in_this_process else options.workers or max(1, min(len(pieces), os.cpu_count() or 1))
    done: Iterator[WorkPiece | None]
    if in_this_process:
        done = runners.in_this_process(work, pieces)
    elif options.runner == "dask":
        done = runners.on_dask(work, pieces, options.dask.scheduler, workers)
    else:
        done = runners.in_processes(work, pieces, workers)
    total, began = sum(piece.size for piece in pieces), time.perf_counter()
    title = f"pieces of work: {len(pieces):,}, {human_bytes(total)} in all, {workers} at a time"
    done_pieces, said = 0, began
    with log.progress(title, total) as advance:
        for piece in done:
            if piece is not None:
                advance(piece.size)
                done_pieces += 1
            if not log.console.is_terminal and time.perf_counter() - said > _PATIENCE:
                said = time.perf_counter()
                log.info(f"{done_pieces:,} of {len(pieces):,} pieces after {said - began:,.0f} s")


def _verify(store: Path, pieces: "Sequence[WorkPiece]", log: "Log") -> "list[RowShape]":
    """Compares the checksums of shards; a shard that is damaged, and those behind it, are to be made again, with the
    plans of rows that are returned."""
    from train.data.store import layout, plans, writing

    endings: dict[str, None] = {}
    for piece in pieces:
        _, facts = writing.progress(store, piece)
        for index, fields in enumerate(facts):
            shards = [layout.Shard.of(shard) for shard in fields["parts"].values()]
            if damaged := next((name for shard in shards for name in layout.damaged_files(store, shard)), None):
                log.info(f"{damaged} is damaged, and is made again")
                for later in range(index, len(facts)):
                    (store / f"{writing.shard_name(piece, later)}.json").unlink()
                endings |= {ending: None for shard in shards for ending in shard.plans}
                break
    return [plans.RowShape.of(ending) for ending in endings]


def _finish(store: Path, request: "Request", log: "Log") -> None:
    """Writes the manifest, or says what is missing for it."""
    from train.data.store import layout, writing
    from train.text import tokenize
    from train.text.special import document_marks

    sources: dict[str, dict[str, list[layout.Shard]]] = {name: {} for name in request.sources}
    missing = 0
    for piece in request.pieces:
        progress, facts = writing.progress(store, piece)
        missing += not progress.is_complete
        for fields in facts:
            for part, shard in fields["parts"].items():
                sources[piece.name.partition("/")[0]].setdefault(part, []).append(layout.Shard.of(shard))
    if missing:
        return log.info(f"{missing:,} of {len(request.pieces):,} pieces are missing: run the other parts")
    layout.remove_unfinished(store)
    if not any(sources.values()):
        raise UserError("the sources hold no text; check the files, or choose others")
    tokenizer = layout.read_tokenizer(store)
    facts_of_ids = writing.id_type(tokenizer), document_marks(tokenizer), tokenize.fingerprint(tokenizer)
    manifest = layout.Manifest(*facts_of_ids, request.data.control_tokens, sources)
    layout.write_manifest(store, manifest)
    log.table(f"{store} is complete; next: python -m train.main --data={store}", _overview(manifest))
    return None


def _overview(manifest: "Manifest") -> dict[str, str]:
    """Lines about the sources of a store."""
    lines = {}
    for source, parts in manifest.sources.items():
        ids = {part: sum(shard.ids for shard in shards) / 1e6 for part, shards in parts.items()}
        size = sum(shard.bytes for shards in parts.values() for shard in shards) / 1e6
        lines[source] = (
            f"{ids.get('train', 0.0):,.2f} million tokens to train on, {ids.get('valid', 0.0):,.2f} to validate on, of "
            f"{size:,.1f} MB of text"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
