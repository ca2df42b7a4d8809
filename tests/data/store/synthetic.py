"""A store of random tokens of any size, made without text."""

import dataclasses
import json
from pathlib import Path

import numpy as np

from train.data.store import layout
from train.data.store.plans import RowShape, plan_shard
from train.settings import schema
from train.text import tokenize
from train.text.special import document_marks

# Ids of a shard.
SHARD = 1 << 27


def make(store: Path, tokens: int, shapes: list[RowShape], seed: int = 0) -> None:
    """A store of one source, `random`, of documents of about 600 tokens, and of a small part for validation."""
    tokenizer = tokenize.train(schema.Tokenizer("bpe", 300), ["a few words of no meaning"])
    layout.write_tokenizer(store, tokenizer)
    marks, vocab = document_marks(tokenizer), tokenizer.get_vocab_size()
    (store / layout.REQUEST).write_text(json.dumps({"sources": {}}))
    rng = np.random.default_rng(seed)
    sizes = [("train", min(SHARD, tokens - first)) for first in range(0, tokens, SHARD)] + [("valid", 100_000)]
    parts: dict[str, list[layout.Shard]] = {}
    for index, (part, size) in enumerate(sizes):
        name = f"random/{index:05d}-000{layout.PARTS[part]}"
        lengths = np.minimum(np.exp(rng.normal(5.9, 1, size // 200 + 2)).astype(np.int64) + 1, 20_000)
        ends = np.cumsum(lengths + 1)
        ends = np.append(ends[ends < size - 2], size - 1)
        ids = rng.integers(5, vocab, size, dtype=np.uint16)
        ids[0] = ids[ends] = marks.last
        with layout.writer(store / f"{name}.bin") as file:
            file.write(ids.tobytes())
        with layout.writer(store / f"{name}.ends") as file:
            file.write(ends.astype("<u8").tobytes())
        crc = {ending: layout.checksums(store / f"{name}{ending}") for ending in (".bin", ".ends")}
        shard = layout.Shard(name, size, len(ends), 4 * size, crc)
        for shape in shapes:
            shard = plan_shard(store, shard, marks, shape)
        parts.setdefault(part, []).append(shard)
    fingerprint = tokenize.fingerprint(layout.read_tokenizer(store))
    layout.write_manifest(store, layout.Manifest("uint16", marks, fingerprint, "text", {"random": parts}))


def facts(store: Path) -> dict:
    """The manifest as JSON."""
    return dataclasses.asdict(layout.read_manifest(store))
