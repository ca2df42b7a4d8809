"""Rows of one text or of several, in buckets of similar lengths: all batches have as many rows, and few shapes."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from train.data import pairs
from train.data.buckets import Buckets, bucket_shapes
from train.data.tokens import TokenizedTexts
from train.settings.schema import Batch
from train.tasks.contrast.options import PAIR_SCORES, TEMPERED, Contrast
from train.text import tokenize
from train.text.special import AnyTokenizer


@dataclasses.dataclass(frozen=True)
class RowFields:
    """What the rows of a batch have beside texts.

    scores: of the two texts of every row, float32 [rows], or of all candidates by a teacher, float32 [rows, n-1]; None
        where texts have none
    options: those of the task
    withheld: whether a row has a combination of words that the training data lack, float32 [rows]
    contents: numbers of the texts of a row, int32 [rows, n]: equal ones are of equal texts
    """

    scores: np.ndarray | None
    options: Contrast
    withheld: np.ndarray
    contents: np.ndarray

    @property
    def grades(self) -> np.ndarray | None:
        """The scores of pairs, float32 [rows]; None where a row has none of its own."""
        return self.scores if self.options.kind in PAIR_SCORES else None

    def of(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """The fields of the rows of a batch; -1 is an empty row."""
        fields = {
            "weights": (rows >= 0).astype(np.float32),
            "withheld": np.where(rows < 0, 0, self.withheld[rows]).astype(np.float32),
        }
        if self.scores is not None:
            values = np.where((rows < 0).reshape(-1, *[1] * (self.scores.ndim - 1)), 0, self.scores[rows])
            fields["teacher" if self.grades is None else "scores"] = values.astype(np.float32)
        if self.options.kind in TEMPERED:
            fields["temperature"] = np.full(len(rows), self.options.temperature, np.float32)
        if self.grades is None:
            fields["contents"] = np.where(rows[:, None] < 0, -1, self.contents[rows])
        if self.options.both_ways:
            fields["both_ways"] = np.ones(len(rows), np.float32)
        if self.options.quantize != "none":
            fields[self.options.quantize] = np.ones(len(rows), np.float32)
        if sizes := self.options.first_numbers:
            fields["sizes"] = np.tile(np.array(sizes, np.int32), (len(rows), 1))
        return fields


class SideRows:
    """Rows of n texts each, `[CLS] text [SEP]`, at most `batch.length` tokens; the end of a longer one is cut off.

    A text without tokens, such as a wrong text that a row does not have, is absent: all of its places are padding. A
    row whose first or second text is absent counts for nothing.

    texts: the tokens of every side
    shortest: places that a row has at the least
    counts: whether a row counts, bool [rows]
    cut: the share of texts that are longer
    """

    independent_rows = True

    def __init__(
        self,
        texts: Sequence[TokenizedTexts],
        fields: RowFields,
        batch: Batch,
        tokenizer: AnyTokenizer,
        max_shapes: int,
        shortest: int = 2,
    ):
        self.texts, self.fields, self.length = texts, fields, batch.length
        self.specials = tokenize.special_tokens(tokenizer)
        lengths = np.stack([text.lengths for text in texts], axis=1)
        self.counts: np.ndarray = np.all(lengths[:, :2] > 0, axis=1)
        sizes = np.where(lengths > 0, lengths + 2, 0)
        self.cut = float((sizes > batch.length).mean()) if len(sizes) else 0.0
        sizes = np.minimum(sizes, batch.length)
        # Two are those of the marks, of a row without any text.
        longest = np.maximum(sizes.max(1, keepdims=True), shortest)
        self.buckets = Buckets(longest, bucket_shapes(longest, batch, max_shapes))
        self.tokens = int(sizes.sum())
        places = sum(len(rows) * self.buckets.shape(rows).lengths[0] for rows in self.buckets.epoch())
        self.padding = 1 - self.tokens / max(1, places * len(texts))

    def __len__(self):
        return len(self.fields.withheld)

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of the texts of every row."""
        return (np.concatenate([text[row] for text in self.texts]) for row in range(len(self)))

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> dict[str, np.ndarray]:
        """The fields of `train.tasks.contrast.task`."""
        (length,) = self.buckets.shape(rows).lengths
        shape = (len(rows), len(self.texts), length)
        tokens, valid = np.full(shape, self.specials.pad, np.int32), np.zeros(shape, np.int32)
        for b, row in enumerate(rows):
            for side, text in enumerate(self.texts):
                if row < 0 or not len(text[row]):
                    continue
                ids, _ = pairs.join([text[row]], length, self.specials)
                tokens[b, side, : len(ids)] = ids
                valid[b, side, : len(ids)] = 1
        fields = self.fields.of(rows)
        fields["weights"] *= self.counts[rows]
        return {"tokens": tokens, "valid": valid} | fields
