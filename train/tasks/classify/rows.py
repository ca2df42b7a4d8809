"""Rows of a classifier: one text or a pair of texts each."""

from collections.abc import Iterator, Sequence

import numpy as np
from tokenizers import Tokenizer

from train.data import pairs
from train.data.labels import LossFields
from train.data.text_rows import TextFields
from train.data.tokens import TokenizedTexts
from train.text import pair_types, tokenize


class Examples:
    """Rows of one text or pair each, padded to `length`; `cut` is the share of texts that are longer.

    `sizes` are the tokens of each row, `longest` is the size of the longest text or pair, with its special tokens. A
    pair that is not `joined` is two texts: the pair in both orders, or each of its texts (`--task.pairs`).

    `loss` says how they count in the loss: here all the same; a task may replace it for training.
    """

    buckets, independent_rows, text_fields = None, True, TextFields()

    def __init__(
        self,
        texts: Sequence[TokenizedTexts],
        labels: np.ndarray,
        length: int,
        tokenizer: Tokenizer,
        pairs: str = "joined",
    ):
        self.texts, self.labels, self.length, self.loss = texts, labels, length, LossFields()
        self.specials, self.separators = tokenize.special_tokens(tokenizer), tokenize.pair_separators(tokenizer)
        self.second_type = pair_types.second_type(tokenizer)
        self.tokens = sum(len(text.ids) for text in texts)
        self.pairs, separators = pairs, self.separators if len(texts) > 1 else 0
        alone = [text.lengths + 2 for text in texts]
        sizes = np.sum([text.lengths for text in texts], axis=0) + 2 + separators
        if pairs != "joined":
            sizes = np.stack(alone if pairs == "apart" else [sizes, sizes], axis=1)
        self.sizes = np.minimum(sizes, length)
        self.padding = float(1 - self.sizes.mean() / length) if len(sizes) else 0.0
        self.longest = int(sizes.max(initial=0))
        self.cut = float((sizes > length).mean()) if len(sizes) else 0.0

    def __len__(self):
        return len(self.labels)

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every text or pair."""
        return (np.concatenate([text[row] for text in self.texts]) for row in range(len(self)))

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> dict[str, np.ndarray]:
        """The fields of single texts, of which a batch is made (`train.data.text_rows`)."""
        count = 1 if self.pairs == "joined" else 2
        shape = (len(rows), count, self.length)
        fields = {name: np.zeros(shape, np.int32) for name in ("tokens", "types", "valid")}
        fields["tokens"][:] = self.specials.pad
        for b, row in enumerate(rows):
            if row < 0:
                continue
            texts = [text[row] for text in self.texts]
            for place, part in enumerate(self._rows_of(texts)):
                ids, second = pairs.join(part, self.length, self.specials, self.separators)
                pairs.fill(fields, (b, place), ids, second, self.second_type)
        labels = self.labels[rows]
        if count == 1:
            fields = {name: field[:, 0] for name, field in fields.items()}
        else:
            fields[self.pairs] = fields["valid"][..., 0]
        return fields | {"labels": labels} | self.loss.fields(labels, rows >= 0)

    def _rows_of(self, texts: list[np.ndarray]) -> list[list[np.ndarray]]:
        """The texts of an example as the model reads them: one after the other, and those of each joined."""
        return {"joined": [texts], "both_ways": [texts, texts[::-1]], "apart": [[text] for text in texts]}[self.pairs]
