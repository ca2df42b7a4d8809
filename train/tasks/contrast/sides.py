"""The tokens of the texts of rows that belong together, or do not."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from train import UserError
from train.data.sources import sources
from train.data.sources.files import Row
from train.data.tokens import PLAIN, Segmentation, TokenizedTexts, contents_of, encode, segmentation_hash, segmentations
from train.files import cache
from train.screens.console import Log
from train.settings.schema import Run
from train.tasks.contrast.rows import SideRows
from train.tasks.contrast.source import WITHHELD, Sides, builtin
from train.tasks.record import Saved
from train.text import tokenize
from train.text.special import AnyTokenizer

RowsT = TypeVar("RowsT", bound=SideRows)


class SideSource(NamedTuple):
    """Where rows come from: their columns, what stands before queries and passages, and whether validation alone is
    read."""

    reader: Sides
    prompts: tuple[str, str]
    valid_only: bool


class SideTexts(NamedTuple):
    """Rows of one segmentation: the columns of each, the tokens of every side with its prompt, and numbers of the texts
    without prompts, int32 [rows,n]: equal ones are of equal texts."""

    examples: Sequence[Row]
    texts: list[TokenizedTexts]
    contents: np.ndarray
    tokenizer: AnyTokenizer


class SideCorpus(NamedTuple, Generic[RowsT]):
    """What `train.data.corpus.Corpus` is made of."""

    tokenizer: AnyTokenizer
    train: list[RowsT]
    valid: RowsT
    facts: dict[str, object]


def withheld_of(examples: Sequence[Row]) -> np.ndarray:
    """Whether a row has a combination of words that the training data lack, float32 [rows]."""
    return np.array([row.get(WITHHELD, False) for row in examples], np.float32)


def read_sides(
    run: Run, source: SideSource, rows_of: Callable[[SideTexts], RowsT], log: Log, saved: Saved | None
) -> SideCorpus[RowsT]:
    """The tokenizer and the rows of a run; those of training once for each segmentation.

    Raises UserError where no validation row says anything.
    """
    reader = source.reader
    train, valid = _usable_rows(run, reader, log, source.valid_only)
    prompts = [source.prompts[0], *[source.prompts[1]] * (len(reader.texts) - 1)]
    if saved:
        tokenizer = saved.processor
    else:
        tokenizer = tokenize.load(run.tokenizer, [text for row in train for text in reader.texts_of(row)], log)

    def encoded(
        examples: Sequence[Row], name: str, segmentation: Segmentation, prompts: Sequence[str]
    ) -> list[TokenizedTexts]:
        return [
            encode(tokenizer, [prompt + row[column] for row in examples], log, name, segmentation)
            for column, prompt in zip(reader.texts, prompts, strict=True)
        ]

    def rows(examples: Sequence[Row], name: str, segmentation: Segmentation = PLAIN) -> RowsT:
        texts = encoded(examples, name, segmentation, prompts)
        is_plain = segmentation == PLAIN and not any(prompts)
        plain = texts if is_plain else encoded(examples, name, PLAIN, [""] * len(reader.texts))
        return rows_of(SideTexts(examples, texts, contents_of(plain, run.batch.length - 2), tokenizer))

    train_rows = [rows(train, "training text", segmentation) for segmentation in segmentations(run)] if train else []
    names = (*reader.texts, *reader.labels)
    facts: dict[str, object] = {
        "tokenizer": tokenize.fingerprint(tokenizer),
        "hash": cache.digest(*([str(row[name]) for row in part for name in names] for part in (train, valid))),
        "segmentation_hash": segmentation_hash(run, (text for part in train_rows for text in part.texts)),
        "cut": train_rows[0].cut if train_rows else 0.0,
    }
    valid_rows = rows(valid, "validation text")
    if silent := sum(int((~part.counts).sum()) for part in (*train_rows[:1], valid_rows)):
        log.info(f"{silent:,} rows with a text that has no tokens count for nothing")
    return SideCorpus(tokenizer, train_rows, valid_rows, facts)


def _usable_rows(run: Run, reader: Sides, log: Log, valid_only: bool) -> tuple[list[Row], list[Row]]:
    """Training and validation rows whose texts say something. Raises UserError where no validation row does."""
    parts = sources.load(run.data, reader, partial(builtin, reader), log.info, valid_only)
    train, valid = ([row for row in part if reader.is_usable(row)] for part in parts)
    if blank := sum(map(len, parts)) - len(train) - len(valid):
        log.info(f"{blank:,} rows with a blank text are left out")
    if not valid:
        raise UserError(f"every row of {run.data.eval or run.data.source} has a blank text; correct the columns")
    if len(train) > 1 and len(reader.texts) > 1 and len({row[reader.texts[1]] for row in train}) == 1:
        log.info(
            f"every row has the same text {reader.texts[1]!r}: there is nothing to tell apart, and nothing to learn"
        )
    return train, valid
