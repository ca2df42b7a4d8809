"""Rows of multiple choice: a text with each of its continuations."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from train.data import pairs
from train.data.labels import LossFields
from train.data.text_rows import TextFields
from train.data.tokens import TokenizedTexts
from train.text import pair_types, tokenize


class ChoiceTokens(NamedTuple):
    """Texts, and the continuations of all, one after the other: those of text r are firsts[r] to firsts[r + 1] - 1."""

    contexts: TokenizedTexts
    choices: TokenizedTexts
    firsts: np.ndarray


class Choices:
    """Rows of a text and its continuations, each pair padded to `length`; `cut` is the share of pairs that are longer.

    text: their tokens
    labels: the place of the right continuation, int32 [rows]; or the grade of each, float32 [rows,count]
    count: places for continuations in a row
    loss: how rows count in the loss
    """

    buckets, independent_rows, text_fields = None, True, TextFields()

    def __init__(self, text: ChoiceTokens, labels: np.ndarray, count: int, length: int, tokenizer: Tokenizer):
        self.text, self.labels, self.count, self.length, self.loss = text, labels, count, length, LossFields()
        self.specials, self.separators = tokenize.special_tokens(tokenizer), tokenize.pair_separators(tokenizer)
        self.second_type = pair_types.second_type(tokenizer)
        counts = np.diff(text.firsts)
        contexts = np.repeat(text.contexts.lengths, counts)
        self.tokens = int(contexts.sum()) + len(text.choices.ids)
        sizes = contexts + text.choices.lengths + 2 + self.separators
        self.sizes = np.zeros((len(labels), count), np.int64)
        self.sizes[np.arange(count) < counts[:, None]] = np.minimum(sizes, length)
        self.padding = float(1 - self.sizes.sum() / max(self.sizes.size * length, 1))
        self.cut = float((sizes > length).mean()) if len(sizes) else 0.0

    def __len__(self):
        return len(self.labels)

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every text with its continuations."""
        text = self.text
        for row, (first, last) in enumerate(itertools.pairwise(text.firsts)):
            yield np.concatenate(
                [text.contexts[row], text.choices.ids[text.choices.starts[first] : text.choices.starts[last]]]
            )

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> dict[str, np.ndarray]:
        """The fields of single texts, of which a batch is made (`train.data.text_rows`)."""
        shape = (len(rows), self.count, self.length)
        fields = {name: np.zeros(shape, np.int32) for name in ("tokens", "types", "valid")}
        fields["tokens"][:] = self.specials.pad
        for b, row in enumerate(rows):
            if row < 0:
                continue
            for place, choice in enumerate(range(self.text.firsts[row], self.text.firsts[row + 1])):
                texts = [self.text.contexts[row], self.text.choices[choice]]
                ids, second = pairs.join(texts, self.length, self.specials, self.separators)
                pairs.fill(fields, (b, place), ids, second, self.second_type)
        fields["present"] = fields["valid"][..., 0]  # every continuation has a [CLS]
        return fields | {"labels": self.labels[rows]} | self.loss.fields(self.labels[rows], rows >= 0)


def first_places(choices: Sequence[Sequence[str]]) -> np.ndarray:
    """Where the continuations of each row start, and of the last one end, int [rows + 1]."""
    return np.cumsum([0, *map(len, choices)])
