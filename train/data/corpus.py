"""Training and validation rows, and the batches made of them, for every task."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from train import UserError
from train.data import feed
from train.data.buckets import Buckets
from train.settings.schema import Run


class Rows(Protocol):
    """What a task makes of its text: rows that can be built on their own."""

    tokens: int
    padding: float
    independent_rows: bool  # what a row holds depends on no other row of its batch, so that some can be left empty

    @property
    def buckets(self) -> Buckets | None:
        """What rows of similar lengths stand in, where they make batches of several shapes."""

    def __len__(self) -> int: ...

    def batch(self, numbers: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Fields [B, ...] of these rows; -1 stands for a row that is empty and counts for nothing."""


Layout = TypeVar("Layout", bound=Rows)

# From a number of rows to which of them a process needs, bool [B].
Share = Callable[[int], np.ndarray]


class Corpus(Generic[Layout]):
    """What a run trains and validates on. `batch(n)` is a pure function of the seed and n.

    `train` holds the rows of each draw of the tokenizer: one, or with BPE dropout several, which take turns as epochs. `sizes` are the
    sizes of the model that the data decide, `facts` what run.json and a table record beside the usual, `others` rows to be judged on at
    the end by a name.
    """

    def __init__(
        self,
        run: Run,
        processor,
        train: Sequence[Layout],
        valid: Layout,
        sizes: Mapping[str, int],
        facts: Mapping[str, Any],
        others: Mapping[str, Layout] | None = None,
    ):
        self.others = others or {}
        self.run, self.processor, self.train, self.valid = run, processor, train, valid
        self.sizes, self._facts = sizes, facts
        if not valid.tokens:
            raise UserError("the validation text has no tokens; give more text with --data or --eval-data")
        least, size = min(map(len, train), default=0), run.batch.size
        if train and least < size and not train[0].buckets:
            raise UserError(
                f"--data={run.data.source} fills {least} rows of {run.batch.length} tokens, too few for --batch.size={size}"
            )

    @cached_property
    def rows(self) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
        """`rows(n)`: draws and training rows of batch n."""
        buckets = [rows.buckets for rows in self.train if rows.buckets]
        if buckets:
            return feed.shuffled_batches(buckets, self.run.seed)
        return feed.shuffled_rows([len(rows) for rows in self.train], self.run.seed, self.run.batch.size)

    @property
    def tokens_a_step(self) -> float:
        """Places of a batch, or where batches have several shapes, their tokens on average."""
        batch, buckets = self.run.batch, self.train[0].buckets
        return buckets.tokens / buckets.batches if buckets else batch.size * batch.length

    def batch(self, n: int, share: Share | None = None) -> dict[str, np.ndarray]:
        """Training batch n; the rows that are not this process's share are empty, and their tokens never read."""
        draws, rows = self.rows(n)
        rng = self._rng(0, n)
        drawn = list(dict.fromkeys(draws.tolist()))
        groups = [rows[draws == draw] for draw in drawn]
        rows = _shared(np.concatenate(groups), share) if self.train[0].independent_rows else np.concatenate(groups)
        groups = np.split(rows, np.cumsum([len(group) for group in groups])[:-1])
        parts = [self.train[draw].batch(group, rng) for draw, group in zip(drawn, groups, strict=True)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def of_every_shape(self) -> list[dict[str, np.ndarray]]:
        """A training batch of every shape that there will be: one of each bucket, or one."""
        bucketed = [(rows, rows.buckets.examples()) for rows in self.train if rows.buckets]
        batches = [rows.batch(numbers, self._rng(0, 0)) for rows, examples in bucketed for numbers in examples]
        return batches or [self.batch(0)]

    def valid_batches(self, most: int = 0, share: Share | None = None) -> Iterator[dict[str, np.ndarray]]:
        """The validation rows, always in the same order and the same in every detail; `most` batches of them, 0 for all; of each, the share
        of this process."""
        size, rows = self.run.batch.size, len(self.valid)
        places = (np.arange(start, start + size) for start in range(0, rows, size))
        batches = (
            self.valid.buckets.epoch()
            if self.valid.buckets
            else (np.where(numbers < rows, numbers, -1) for numbers in places)
        )
        for n, numbers in enumerate(itertools.islice(batches, most or None)):
            yield self.valid.batch(_shared(numbers, share) if self.valid.independent_rows else numbers, self._rng(1, n))

    def facts(self) -> dict[str, Any]:
        """What run.json records about the data."""
        return {
            "source": self.run.data.source,
            "train_tokens": self.train[0].tokens if self.train else 0,
            "eval_tokens": self.valid.tokens,
            "padding": round(float(self.train[0].padding), 4) if self.train else 0.0,
            **self._facts,
        }

    def overview(self) -> dict[str, str]:
        """Lines of the start-up table."""
        facts, rows, run = self.facts(), self.train[0], self.run
        draws = f", split in {len(self.train)} ways" if len(self.train) > 1 else ""
        lines = {
            "text": f"{facts['source']}, hash {facts['hash']}",
            "tokens": f"{facts['train_tokens']:,} to train on{draws}, {facts['eval_tokens']:,} to validate on",
            "rows": f"{len(rows):,} of {run.batch.length}, {facts['padding']:.1%} padding",
        }
        if "vocab" in self.sizes:
            lines["vocabulary"] = f"{self.sizes['vocab']:,}"
        if rows.buckets:
            shapes = rows.buckets.shapes
            lines["rows"] = (
                f"{len(rows):,}, {facts['padding']:.1%} padding, in {rows.buckets.batches:,} batches an epoch"
            )
            lines["shapes"] = f"{len(shapes)} to compile: {', '.join(map(str, shapes))}"
        if facts.get("empty") or facts.get("long"):
            longer = f"{facts['long']:,} longer than {run.batch.length} tokens"
            lines["left out"] = f"{facts['empty']:,} pairs with an empty side, {longer}"
        if facts.get("cut"):
            lines["rows"] += f"; {facts['cut']:.1%} of the texts are longer and lose their end"
        return lines | ({"classes": ", ".join(facts["classes"])} if facts.get("classes") else {})

    def _rng(self, stream: int, n: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(np.random.SeedSequence([self.run.seed, stream, n])))


def _shared(rows: np.ndarray, share: Share | None) -> np.ndarray:
    """The rows of a share, -1 for others; one more stays, the last one of all texts: by it, rows in buckets know their shape."""
    if share is None:
        return rows
    kept = share(len(rows)).copy()
    kept[rows.argmax()] = True
    return np.where(kept, rows, -1)
