"""Training and validation rows, and the batches made of them, for every task."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from train import UserError
from train.data import by_source, feed, mixture, permutation, row_plan, text_rows
from train.data.ahead import Ahead
from train.data.buckets import Buckets
from train.data.by_source import SourceBatch
from train.settings.schema import Run


class TaskRows(Protocol):
    """What a task makes of its examples: rows that can be built in any order.

    tokens: number of tokens in all rows
    padding: share of places that hold no token
    independent_rows: whether a row is the same whatever else is in its batch, so that some rows can be left empty
    """

    tokens: int
    padding: float
    independent_rows: bool

    @property
    def buckets(self) -> Buckets | None:
        """The buckets of rows whose batches have several shapes, else None."""

    def __len__(self) -> int: ...

    def batch(self, rows: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The fields [B, ...] of these rows; -1 is an empty row that counts for nothing."""

    def example_ids(self) -> Iterator[np.ndarray]:
        """The token ids of every example, all its texts joined; none are cut off."""


AnyRows = TypeVar("AnyRows", bound=TaskRows)

# Number of rows of a batch -> whether this process computes on each, bool [B].
LocalRows = Callable[[int], np.ndarray]


class Corpus(Generic[AnyRows]):
    """What a run trains and validates on. `batch(n)` is a pure function of the seed and n.

    processor: turns raw examples into rows, such as a tokenizer
    train: training rows, once for each segmentation of the text (several with BPE dropout); they take turns as epochs
    valid: validation rows
    sizes: sizes of the model that the data decide, such as vocab
    facts: what run.json and the start-up table say beside what all corpora do
    test_sets: further rows that are evaluated at the end, by name
    shares, skipped: of sources by rows of the run; batches of the order of rows before batch 0
    """

    def __init__(
        self,
        run: Run,
        processor,
        train: Sequence[AnyRows],
        valid: AnyRows,
        sizes: Mapping[str, int],
        facts: Mapping[str, object],
        test_sets: Mapping[str, AnyRows] | None = None,
    ):
        self.run, self.processor, self.skipped = run, processor, 0
        self.train, self.valid, self.test_sets = train, valid, test_sets or {}
        self.sizes, self._facts = sizes, facts
        if not valid.tokens:
            raise UserError("the validation text has no tokens; give more text with --data or --eval-data")
        self.layout = self._layout(train or [valid])
        self._sources: Mapping[str, int] = facts.get("sources", {})  # type: ignore[assignment]
        self.shares = [mixture.Phase(first, shares) for first, shares in facts.get("mixture", ())]  # type: ignore[attr-defined]
        counts, size = [*map(len, train)], self.layout.size if self.layout else run.batch.size
        rows = sum(counts) if self.shares else min(counts, default=0)
        if train and rows < size and not train[0].buckets:
            raise UserError(
                f"--data={run.data.source} fills {rows} rows of {run.row_tokens} tokens, "
                f"too few for --batch.size={size}"
            )

    @cached_property
    def rows(self) -> feed.Order:
        """`rows(n)`: segmentations and training rows of batch n, each int [B]."""
        if self._continues:
            first = int(np.random.default_rng([self.run.seed, 3]).integers(len(self.train[0])))
            return feed.continued_rows(len(self.train[0]), self.run.batch.size, first)
        buckets = [rows.buckets for rows in self.train if rows.buckets]
        if buckets:
            return feed.shuffled_batches(buckets, self.run.seed)
        if self.layout and self.layout.dealt != "shuffled":
            return feed.dealt_texts(text_rows.lengths_of(self.train), self.run.seed, self.layout)
        if self.shares:
            shuffle, size = self.run.data.shuffle, self.run.batch.size
            return feed.mixed_rows(self._sources, self.shares, self.run.seed, size, shuffle)
        return feed.shuffled_rows([len(rows) for rows in self.train], self.run.seed, self.run.batch.size)

    def batch(self, n: int, local_rows: LocalRows | None = None) -> dict[str, np.ndarray]:
        """Training batch n. Rows of other processes are empty; their tokens are never read."""
        return self._fields(self.train, *self.rows(n + self.skipped), self._rng(0, n), self.layout, local_rows)

    def batch_ahead(self, n: int, local_rows: LocalRows | None = None) -> dict[str, np.ndarray]:
        """`batch(n, local_rows)`, with the same `local_rows` every time.

        Where rows take long to make, such as pictures, a thread makes the next batches meanwhile.
        """
        return self._ahead(n, local_rows)

    @cached_property
    def _ahead(self) -> Callable[..., dict[str, np.ndarray]]:
        count = getattr(self.train[0], "batches_ahead", 0)
        return Ahead(self.batch, count) if count else self.batch

    def batch_rows(self, n: int) -> np.ndarray:
        """The training rows of batch n, int [B], in the order in which they stand in it."""
        return self.rows(n + self.skipped)[1]

    def example_batches(self) -> list[dict[str, np.ndarray]]:
        """A training batch of every shape: one of each bucket, one where texts fit their rows and one where they do
        not, or one."""
        examples = [(rows, batch_rows) for rows in self.train if rows.buckets for batch_rows in rows.buckets.examples()]
        if examples:
            return [rows.batch(batch_rows, self._rng(0, 0)) for rows, batch_rows in examples]
        layout, (segmentations, rows) = self.layout, self.rows(0)
        if layout is None:
            return [self._fields(self.train, segmentations, rows, self._rng(0, 0), None)]
        sizes = np.stack([part.sizes for part in self.train])[segmentations, rows]  # type: ignore[attr-defined]
        return [
            self._fields(self.train, segmentations, kept, self._rng(0, 0), of_length)
            for of_length, kept in layout.examples(rows, sizes)
        ]

    def valid_batches(
        self, max_batches: int = 0, local_rows: LocalRows | None = None
    ) -> Iterator[dict[str, np.ndarray]]:
        """At most `max_batches` (0: all) batches of validation rows in order; those of other processes are empty."""
        layout, order = self._valid_order(max_batches)
        for n, rows in order:
            yield self._fields([self.valid], np.zeros_like(rows), rows, self._rng(1, n), layout, local_rows)

    def valid_parts(self, max_batches: int = 0) -> list[SourceBatch]:
        """The batches of `valid_batches` where each is of one of several sources; else none."""
        sizes: Mapping[str, int] = self._facts.get("eval_sources", {})  # type: ignore[assignment]
        return [] if self._continues else by_source.batches(sizes, self.run.batch.size, max_batches)

    def source_metrics(self, step: int, sums: Mapping[str, float]) -> dict[str, float]:
        """Of several sources: `epochs/NAME`, how often the rows of each were read in the first `step` steps, and
        `loss/NAME`, from the sums of the steps since the last log line."""
        rows = (step + self.skipped) * self.run.batch.size
        epochs = by_source.epochs(self._sources, self.shares, rows)
        return epochs | by_source.train_losses(list(self._sources), sums)

    def _valid_order(self, max_batches: int) -> tuple[text_rows.Layout | None, Iterable[tuple[int, np.ndarray]]]:
        """The layout, and the number and the rows of each validation batch, -1 for an empty row."""
        if parts := self.valid_parts(max_batches):
            return None, [(part.batch, part.rows) for part in parts]
        if self.valid.buckets:
            return None, enumerate(itertools.islice(self.valid.buckets.epoch(), max_batches or None))
        layout, count = self._valid_layout, len(self.valid)
        size = layout.size if layout else self.run.batch.size
        batches = min(-(-count // size), max_batches or count)
        if self._continues:
            order = feed.continued_rows(count, size)
            return None, ((n, order(n)[1]) for n in range(batches))
        rows = np.arange(batches * size)
        rows = np.where(rows < count, rows, -1)
        if not layout or layout.dealt == "shuffled":
            return layout, enumerate(rows.reshape(-1, size))
        lengths = np.where(rows < 0, 0, text_rows.lengths_of([self.valid])[0][rows])
        places = layout.deal(lengths, np.random.default_rng(0))
        is_empty = places < 0
        return layout.fitted(np.where(is_empty, 0, lengths[places])), enumerate(np.where(is_empty, -1, rows[places]))

    def by_text(
        self, batch: Mapping[str, np.ndarray], outcomes: Mapping[str, Any]
    ) -> tuple[dict[str, Any], np.ndarray]:
        """What a model says of a batch, by text where it is of texts, and the numbers of the rows of its arrays."""
        if self.layout is None:
            return dict(outcomes), np.zeros(0, np.int64)
        names: text_rows.TextFields = self.valid.text_fields  # type: ignore[attr-defined]
        rows = batch["rows"]
        return text_rows.by_text(batch, outcomes, names, self.run.batch.length), rows[rows >= 0]

    @property
    def _continues(self) -> bool:
        """Whether a row continues the same row of the batch before, of which the model has a memory."""
        return self.run.task.memory is not None

    def _fields(
        self,
        rows_of_task: Sequence[AnyRows],
        segmentations: np.ndarray,
        rows: np.ndarray,
        rng: np.random.Generator,
        layout: text_rows.Layout | None,
        local_rows: LocalRows | None = None,
    ) -> dict[str, np.ndarray]:
        """The fields of a batch. Where rows continue one another, `continues` [B] says that a row is not the first."""
        kept = feed.only_local(rows, local_rows) if rows_of_task[0].independent_rows else rows
        fields: dict[str, np.ndarray] = {}
        for index in dict.fromkeys(segmentations.tolist()):
            part, is_of = rows_of_task[index], segmentations == index
            parts = part.batch(kept[is_of], rng)
            if layout is not None:
                parts["sizes"] = text_rows.sizes_of(part.sizes, rows[is_of])
            if is_of.all():  # nothing is copied: M78
                fields = parts
                break
            for name, field in parts.items():
                shape, dtype = (len(rows), *field.shape[1:]), field.dtype
                fields.setdefault(name, np.empty(shape, dtype))[is_of] = field
        if layout is not None:
            first: Any = rows_of_task[0]
            return layout.pack(fields, first.text_fields, rows, fields.pop("sizes"), first.specials.pad)
        fields |= by_source.field(segmentations, len(rows_of_task) if self.shares else 0)
        return fields | {"continues": rows > 0} if self._continues else fields

    def _layout(self, rows_of_task: Sequence[AnyRows]) -> text_rows.Layout | None:
        """How texts lie in the rows of a batch; None for other rows than those of single texts."""
        if not hasattr(rows_of_task[0], "text_fields"):
            return None
        return row_plan.plan(self.run, [rows.sizes for rows in rows_of_task])  # type: ignore[attr-defined]

    @cached_property
    def _valid_layout(self) -> text_rows.Layout | None:
        """How validation texts lie in rows: planned before their first batch."""
        return self._layout([self.valid]) if self.train else self.layout

    @property
    def padding(self) -> float:
        """The share of places of training rows that hold no token."""
        if not self.train:
            return 0.0
        if self.layout:
            return self.layout.padding
        return float(np.average([rows.padding for rows in self.train], weights=[len(rows) for rows in self.train]))

    @property
    def _train_tokens(self) -> int:
        """Tokens of all sources, or of one segmentation."""
        return sum(rows.tokens for rows in (self.train if self.shares else self.train[:1]))

    def facts(self) -> dict[str, Any]:
        """What run.json records about the data."""
        return {
            "source": self.run.data.source,
            "train_tokens": self._train_tokens,
            "eval_tokens": self.valid.tokens,
            "padding": round(self.padding, 4),
            "order": permutation.NAME + (f", {self.layout.dealt}" if self.layout else ""),
            **self._facts,
        }

    def overview(self) -> dict[str, str]:
        """Lines of the start-up table."""
        facts, rows, length = self.facts(), self.train[0], self.run.batch.length
        if own_overview := getattr(rows, "overview", None):
            return own_overview(facts)
        splits = f", split in {len(self.train)} ways" if len(self.train) > 1 and not self.shares else ""
        lines = {
            "text": f"{facts['source']}, hash {facts['hash']}",
            "tokens": f"{facts['train_tokens']:,} to train on{splits}, {facts['eval_tokens']:,} to validate on",
        }
        if "vocab" in self.sizes:
            lines["vocabulary"] = f"{self.sizes['vocab']:,}"
        if self.shares:
            lines["sources"] = mixture.overview(self._sources, [r.tokens for r in self.train], self.shares, self.run)
        padding = f"{facts['padding']:.1%} padding"
        if rows.buckets:
            shapes = rows.buckets.shapes
            count = len(rows.buckets.shape_of)
            lines["rows"] = f"{count:,}, {padding}, in {rows.buckets.batches:,} batches an epoch"
            lines["shapes"] = f"{len(shapes)} to compile: {', '.join(map(str, shapes))}"
        elif self.layout and self.layout.packs:
            lines["rows"] = f"{len(rows):,} texts share rows of {self.layout.shape.length}, {padding}"
        else:
            count = sum(map(len, self.train)) if self.shares else len(rows)
            lines["rows"] = f"{count:,} of {self.layout.row_lengths if self.layout else length}, {padding}"
            if self.layout:
                lines["rows"] += f"; each text has a row: {self.layout.reason}"
        if facts.get("cut"):
            lines["rows"] += f"; {facts['cut']:.1%} of the texts are longer and lose their end"
        if facts.get("empty") or facts.get("long"):
            too_long = f"{facts['long']:,} longer than {length} tokens"
            lines["left out"] = f"{facts['empty']:,} pairs with an empty side, {too_long}"
        if facts.get("classes"):
            lines["classes"] = ", ".join(facts["classes"])
        return lines

    def _rng(self, stream: int, n: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(np.random.SeedSequence([self.run.seed, stream, n])))
