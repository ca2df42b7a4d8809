"""Pairs of texts of any size: in a file of the cache, of which a text is read when it is asked for."""

import hashlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np

from train import UserError
from train.data.sources import files, opening, sources, stream
from train.data.sources.files import Row
from train.data.sources.hold_out import HELD_OUT, is_held_out
from train.files import cache
from train.settings.schema import Data

Pair = tuple[str, str]

# Appends to an entry of the cache.
Append = Callable[[bytes | memoryview], None]

# The bytes of files whose pairs are not kept in memory; compressed ones count as four times as many.
LARGE, _GROWTH = 1 << 28, 4

# Bytes of the pairs from which a tokenizer is trained.
SAMPLE = 50_000_000


class PairSide(Sequence[str]):
    """The sources (0) or the targets (1) of pairs."""

    def __init__(self, pairs: "KeptPairs", side: int):
        self.pairs, self.side = pairs, side

    def __len__(self):
        return len(self.pairs)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row):
        chosen = self.pairs[row]
        return [pair[self.side] for pair in chosen] if isinstance(row, slice) else chosen[self.side]


class KeptPairs(Sequence[Pair]):
    """Pairs whose texts are UTF-8, one behind the other: text t is content[ends[t - 1] : ends[t]], and pair n has the
    texts 2n and 2n + 1."""

    def __init__(self, content: memoryview, ends: np.ndarray, chosen: np.ndarray | None = None):
        self.content, self.ends = content, ends
        self.chosen = np.arange(len(ends) // 2) if chosen is None else chosen

    def __len__(self):
        return len(self.chosen)

    @overload
    def __getitem__(self, row: int) -> Pair: ...
    @overload
    def __getitem__(self, row: slice) -> "KeptPairs": ...
    def __getitem__(self, row):
        if isinstance(row, slice):
            return self.take(np.arange(len(self))[row])
        first = 2 * int(self.chosen[row])
        begin = int(self.ends[first - 1]) if first else 0
        middle, end = self.ends[first : first + 2].tolist()
        return str(self.content[begin:middle], "utf-8"), str(self.content[middle:end], "utf-8")

    def take(self, rows: np.ndarray) -> "KeptPairs":
        """Some of the pairs."""
        return KeptPairs(self.content, self.ends, self.chosen[rows])


def take(pairs: Sequence[Pair], rows: np.ndarray) -> Sequence[Pair]:
    """Some of the pairs."""
    return pairs.take(rows) if isinstance(pairs, KeptPairs) else [pairs[row] for row in rows.tolist()]


def sides(pairs: Sequence[Pair]) -> list[Sequence[str]]:
    """All sources, and all targets."""
    if isinstance(pairs, KeptPairs):
        return [PairSide(pairs, 0), PairSide(pairs, 1)]
    return [[pair[side] for pair in pairs] for side in range(2)]


def sample(pairs: Sequence[Pair]) -> list[str]:
    """Both sides of all pairs; of those on the disk, of some from all over them, of about SAMPLE bytes."""
    step = max(1, len(pairs.content) // SAMPLE) if isinstance(pairs, KeptPairs) else 1
    return [side for row in range(0, len(pairs), step) for side in pairs[row]]


class HeldOutPairs(NamedTuple):
    """Pairs to train on, those that are held out, and how many had an empty side and are left out."""

    train: KeptPairs
    valid: KeptPairs
    empty: int


def is_large(source: str, data: Data, columns: files.Columns) -> bool:
    """Whether the files of a source are too large to be read into memory for nothing."""
    return sum(_bytes_of(file) for file in _files_of(source, data, columns)) >= LARGE


def _bytes_of(file: opening.SourceFile) -> int:
    return file.size * (_GROWTH if os.path.splitext(file.path)[1] in opening.DECOMPRESSED else 1)


def _files_of(source: str, data: Data, columns: files.Columns) -> list[opening.SourceFile]:
    """The files of a source that are read as streams; none of others."""
    if source == "builtin" or source.startswith("tfds:") or opening.is_url(source):
        return []
    if "," in source:
        paths = files.parallel_paths(source, columns)
        return [file for path in paths if path.is_file() for file in opening.files_of(str(path))]
    source_files = opening.files_of(source)
    kinds = {opening.ending(file.path, data.format) for file in source_files}
    return source_files if kinds <= set(stream.TABLES) else []


def load(data: Data, columns: files.Columns, log: sources.LogLine) -> HeldOutPairs:
    """The pairs of --data, and with no --eval-data a tenth of them held out, by the hash of their texts: those of
    `sources.load`. Raises UserError for bad files."""
    if data.folds:
        raise UserError(
            f"--data.folds={data.folds} divides rows in memory, and --data={data.source} is too large for that"
        )
    source_files = _files_of(data.source, data, columns)
    stamps = [f"{os.path.abspath(path)} {size} {os.stat(path).st_mtime_ns}" for path, size in source_files]
    options = [*columns.texts, str(data.header), str(data.format), str(bool(data.eval)), "1"]
    base = cache.cache_dir() / f"pairs-{cache.digest(stamps, options)}"
    paths = [base.with_suffix(f".{part}") for part in ("train", "valid")]

    def make() -> list[int]:
        log(f"copying the pairs of {data.source} into {base.parent}, from which they are read")
        with cache.writer(paths[0]) as train, cache.writer(paths[1]) as valid:
            return _write(_rows(data, columns), columns, (train, valid), not data.eval)

    empty, *counts = cache.json_value(base.name, make, companions=paths)
    train, valid = (_read(path, count) for path, count in zip(paths, counts, strict=True))
    share = len(valid) / max(1, len(train) + len(valid))
    if not data.eval and not HELD_OUT[0] <= share <= HELD_OUT[1]:
        raise UserError(f"{share:.1%} of the pairs of {data.source} would be held out; name others with --eval-data")
    return HeldOutPairs(train, valid, empty)


def _rows(data: Data, columns: files.Columns) -> Iterator[Row]:
    """The rows of all files, one after the other."""
    if "," not in data.source:
        for file in opening.files_of(data.source):
            yield from stream.rows(stream.Slice(file.path), data, columns)
        return
    paths = files.parallel_paths(data.source, columns)
    sides = [(line for _, line in opening.lines(str(path))) for path in paths]
    for count, lines in enumerate(itertools.zip_longest(*sides), start=1):
        if None in lines:
            shorter = paths[lines.index(None)]
            raise UserError(
                f"{shorter} ends before line {count}; line n of one file must be the translation of line n of the other"
            )
        yield dict(zip(columns.texts, lines, strict=True))


def _write(rows: Iterator[Row], columns: files.Columns, parts: Sequence[Append], holds_out: bool) -> list[int]:
    """Appends the pairs to two entries, and then where their texts end; the counts of empty pairs and of both parts."""
    ends: list[list[np.ndarray]] = [[], []]
    lengths: list[list[int]] = [[], []]
    empty = 0
    for row in rows:
        texts = columns.texts_of(row)
        pair = [text.strip().encode("utf-8", "surrogatepass") for text in texts]
        if not all(pair):
            empty += 1
            continue
        joined = "\0".join(texts).encode("utf-8", "surrogatepass")
        part = int(holds_out and is_held_out(hashlib.sha256(joined).digest()))
        for side in pair:
            parts[part](side)
            lengths[part].append(len(side))
        if len(lengths[part]) >= 1 << 16:
            ends[part].append(np.array(lengths[part], np.int64))
            lengths[part] = []
    counts = []
    for part in range(2):
        of_part = np.concatenate([*ends[part], np.array(lengths[part], np.int64)])
        parts[part](np.cumsum(of_part).tobytes())
        counts.append(len(of_part))
    return [empty, *counts]


def _read(path: Path, count: int) -> KeptPairs:
    """The pairs of an entry of `count` texts."""
    content = cache.read(path)
    if content is None:
        raise UserError(f"{path} is damaged; remove it")
    size = len(content) - 8 * count
    return KeptPairs(content[:size], np.frombuffer(content[size:], np.int64))
