"""Training and validation rows, and the batches made of them, for every task."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from train import UserError, tokenize
from train.config import Run
from train.data import feed


class Rows(Protocol):
    """What a task makes of its text: rows that can be built on their own."""

    tokens: int
    padding: float

    def __len__(self) -> int: ...

    def batch(self, numbers: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Fields [B, ...] of these rows; -1 stands for a row that is empty and counts for nothing."""


Layout = TypeVar("Layout", bound=Rows)


class Corpus(Generic[Layout]):
    """What a run trains and validates on. `batch(n)` is a pure function of the seed and n.

    `train` holds the rows of each draw of the tokenizer: one, or with BPE dropout several, which take turns as epochs. `sizes` are the
    sizes of the model that the data decide, `facts` what run.json and a table record beside the usual.
    """

    def __init__(self, run: Run, tokenizer, train: Sequence[Layout], held: Layout, sizes: Mapping[str, int], facts: Mapping[str, Any]):
        self.run, self.tokenizer, self.train, self.held = run, tokenizer, train, held
        self.sizes, self._facts = {"vocab": tokenizer.get_vocab_size(), **sizes}, facts
        if not held.tokens:
            raise UserError("the validation text has no tokens; give more text with --data or --eval-data")
        least, size = min(map(len, train), default=0), run.batch.size
        if train and least < size:
            raise UserError(f"--data={run.data.source} fills {least} rows of {run.batch.length} tokens, too few for --batch.size={size}")

    @cached_property
    def _order(self):
        return feed.order([len(rows) for rows in self.train], self.run.seed)

    def rows(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws and training rows of batch n."""
        size = self.run.batch.size
        return self._order(np.arange(n * size, (n + 1) * size))

    def batch(self, n: int) -> dict[str, np.ndarray]:
        """Training batch n."""
        draws, rows = self.rows(n)
        rng = self._rng(0, n)
        parts = [self.train[draw].batch(rows[draws == draw], rng) for draw in dict.fromkeys(draws.tolist())]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def held_batches(self, most: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """The validation rows, always in the same order and the same in every detail; `most` batches of them, 0 for all."""
        size, rows = self.run.batch.size, len(self.held)
        for n, start in enumerate(range(0, rows, size)):
            if most and n == most:
                return
            numbers = np.arange(start, start + size)
            yield self.held.batch(np.where(numbers < rows, numbers, -1), self._rng(1, n))

    def facts(self) -> dict[str, Any]:
        """What run.json records about the data."""
        return {
            "source": self.run.data.source,
            "tokenizer": tokenize.fingerprint(self.tokenizer),
            "train_tokens": self.train[0].tokens if self.train else 0,
            "eval_tokens": self.held.tokens,
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
            "vocabulary": f"{self.sizes['vocab']:,}",
            "rows": f"{len(rows):,} of {run.batch.length}, {facts['padding']:.1%} padding",
        }
        if facts.get("cut"):
            lines["rows"] += f"; {facts['cut']:.1%} of the texts are longer and lose their end"
        return lines | ({"classes": ", ".join(facts["classes"])} if facts.get("classes") else {})

    def _rng(self, stream: int, n: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(np.random.SeedSequence([self.run.seed, stream, n])))
