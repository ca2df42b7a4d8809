"""Documents as token ids, encoded once into a memory-mapped cache."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from train import cache, tokenize

# Characters that are handed to the tokenizer at a time.
_CHUNK = 50_000


class Tokens(NamedTuple):
    """All documents in one row of ids, without special tokens; document d is ids[starts[d] : starts[d + 1]]."""

    ids: np.ndarray
    starts: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Tokens in each document."""
        return np.diff(self.starts)


def encode(tokenizer, documents: list[str], log, what: str) -> Tokens:
    """The documents' tokens, from the cache where the same text met the same tokenizer before."""
    key = cache.digest([tokenize.fingerprint(tokenizer)], documents)
    ids_path, starts_path = (cache.folder() / "tokens" / f"{key}.{kind}" for kind in ("ids", "starts"))
    dtype = np.uint16 if tokenizer.get_vocab_size() <= 2**16 else np.uint32
    if not starts_path.exists():
        starts = _write(tokenizer, documents, log, what, ids_path, dtype)
        cache.write(starts_path, starts.tobytes())
    starts = np.frombuffer(starts_path.read_bytes(), np.int64)
    ids = np.memmap(ids_path, dtype, mode="r") if starts[-1] else np.zeros(0, dtype)
    return Tokens(ids, starts)


def _write(tokenizer, documents, log, what, path, dtype) -> np.ndarray:
    """Encodes to `path`, whole or not at all, and returns where each document starts."""
    ends = [0]
    with cache.writing(path) as file, log.progress(f"tokenizing {what}", sum(map(len, documents))) as advance:
        for document in documents:
            total = ends[-1]
            for pieces in _chunks(document):
                for encoding in tokenizer.encode_batch(pieces, add_special_tokens=False):
                    file.write(np.asarray(encoding.ids, dtype).tobytes())
                    total += len(encoding.ids)
                advance(sum(map(len, pieces)))
            ends.append(total)
    return np.array(ends, np.int64)


def _chunks(document: str, batch: int = 16) -> Iterator[list[str]]:
    """A document in lists of pieces for the tokenizer's threads, cut only at single line breaks, where no tokenizer joins."""
    pieces, start = [], 0
    for cut in re.finditer(r"(?<=\S\n)(?=\S)", document):
        if cut.start() - start >= _CHUNK:
            pieces.append(document[start : cut.start()])
            start = cut.start()
            if len(pieces) == batch:
                yield pieces
                pieces = []
    yield [*pieces, document[start:]]
