"""Packed rows of a shard, planned when a store is made: rows of any length in a file of 0.02 bytes for each token."""

import dataclasses
import json
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from train.data import packing
from train.data.store import layout
from train.data.store.layout import Shard, ShardPlan


class RowShape(NamedTuple):
    """Rows of `length` places, of which a piece takes some beside its tokens; packed, or each piece alone."""

    length: int
    special_tokens: int
    pack: bool = True

    @property
    def ending(self) -> str:
        """The ending of the files of these plans."""
        return layout.plan_ending(*self)

    @classmethod
    def of(cls, ending: str) -> Self:
        """The rows of the files of an ending."""
        kind, length, special_tokens = ending.split("-")
        return cls(int(length), int(special_tokens), kind == ".rows")


class DocumentSpans(NamedTuple):
    """Where documents of a shard begin and how many ids each has, int64 [N]."""

    starts: np.ndarray
    lengths: np.ndarray


def spans_of(ends: np.ndarray, marks: tuple[int, int], marked: bool) -> DocumentSpans:
    """The documents of a shard that end at these places; `marked`: with their marks, as a language model reads them.

    A mark that stands between documents counts to the second one; the last mark of a shard counts to none.
    """
    width = 1 if marks[0] == marks[1] else 2
    ends = np.asarray(ends, np.int64)
    firsts = np.concatenate([[1 - width], ends])[:-1] + width  # of the tokens of the documents themselves
    if not marked:
        return DocumentSpans(firsts, ends - firsts)
    last = ends if width == 1 else np.concatenate([ends[:-1] + 1, ends[-1:]])
    return DocumentSpans(firsts - 1, last - (firsts - 1))


def plan_shard(store: Path, shard: Shard, marks: tuple[int, int], shape: RowShape) -> Shard:
    """The shard with a plan of such rows, whose file is written. Rows with special tokens hold documents without
    marks."""
    ends = np.fromfile(store / f"{shard.file}.ends", "<u8")
    spans = spans_of(ends, marks, marked=not shape.special_tokens)
    plan = packing.plan_documents(*spans, shape.length, shape.pack, shape.special_tokens)
    path = store / f"{shard.file}{shape.ending}"
    with layout.writer(path) as file:
        for array, dtype in ((plan.bounds, "<u8"), (plan.starts, "<u8"), (plan.sizes, "<u4")):
            file.write(array.astype(dtype).tobytes())
    facts = ShardPlan(plan.rows, len(plan.sizes), int(plan.sizes.sum()), layout.checksums(path))
    return dataclasses.replace(shard, plans={**shard.plans, shape.ending: facts})


def add_plans(store: Path, name: str, shapes: list[RowShape], marks: tuple[int, int]) -> None:
    """Plans the rows of a complete shard that are not planned yet."""
    path = store / f"{name}.json"
    facts = json.loads(path.read_text())
    for part, fields in facts["parts"].items():
        shard = Shard.of(fields)
        for shape in shapes:
            if shape.ending not in shard.plans:
                shard = plan_shard(store, shard, marks, shape)
        facts["parts"][part] = dataclasses.asdict(shard)
    with layout.writer(path) as file:
        file.write(json.dumps(facts).encode())
