"""Rows of questions and windows on their passages, and the places of answers in them.

A row is `[CLS] question [SEP] window [SEP]` (Devlin et al. 2018, section 4.2). A passage that is longer has several
windows, and so several rows. Tokens know their characters, so that an answer is a part of the passage itself.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from train.data import pairs
from train.data.text_rows import TextFields
from train.data.windows import best_windows, cut
from train.screens.console import Log
from train.tasks.span.options import Span
from train.tasks.span.source import Question
from train.text import control_tokens, pair_types, tokenize

# Passages that are tokenized together.
_BATCH = 1000


class Passage(NamedTuple):
    """A passage as tokens: ids [N], and the first character of each and the one after its last, without white space
    around them."""

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class Passages:
    """Rows of a question and a window each, padded to `length`, those of a question side by side.

    questions: what is asked
    texts: the ids of the questions, without what is cut off
    passages: the passage of each question
    windows: the tokens of the passage in each row
    """

    buckets, independent_rows = None, True
    text_fields = TextFields(
        by_token=("tokens", "types", "valid", "candidates", "start_logits", "end_logits"), by_place=("starts", "ends")
    )

    def __init__(
        self, questions: Sequence[Question], length: int, options: Span, tokenizer: Tokenizer, log: Log, name: str
    ):
        tokenizer = plain(tokenizer)
        self.questions, self.length = questions, length
        self.specials, self.separators = tokenize.special_tokens(tokenizer), tokenize.pair_separators(tokenizer)
        self.second_type = pair_types.second_type(tokenizer)
        texts = encode([question.text for question in questions], tokenizer, log, f"questions of the {name}")
        max_question = min(options.max_question, length // 2 - 2)
        self.texts = [text.ids[:max_question] for text in texts]
        contexts = list(dict.fromkeys(question.context for question in questions))
        by_context = dict(zip(contexts, encode(contexts, tokenizer, log, name), strict=True))
        self.passages = [by_context[question.context] for question in questions]
        sizes = [length - 2 - self.separators - len(text) for text in self.texts]
        self.windows = cut([len(passage.ids) for passage in self.passages], sizes, options.stride)
        answers = zip(questions, self.passages, strict=True)
        self.answers = np.array([answer_tokens(*answer) for answer in answers], np.int64).reshape(-1, 2)
        lengths = self.windows.ends - self.windows.starts + self.first_places + 1
        self.sizes, self.tokens = lengths, int(lengths.sum())
        self.padding = float(1 - lengths.mean() / length) if len(lengths) else 0.0

    def __len__(self):
        return len(self.windows.texts)

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every question with its passage."""
        return (np.concatenate([text, passage.ids]) for text, passage in zip(self.texts, self.passages, strict=True))

    @cached_property
    def first_places(self) -> np.ndarray:
        """The place of the passage's first token in each row, int [rows]."""
        sizes = np.array([len(text) for text in self.texts], np.int64)
        return sizes[self.windows.texts] + 1 + self.separators

    @property
    def golds(self) -> dict[str, list[str]]:
        """The acceptable answers of every question, by its id."""
        return {question.id: question.golds for question in self.questions}

    @cached_property
    def best(self) -> list[np.ndarray]:
        """For every question the row in which each token of its passage has the most context."""
        return best_windows(self.windows, [len(passage.ids) for passage in self.passages])

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> dict[str, np.ndarray]:
        """The fields of single windows, of which a batch is made (`train.data.text_rows`)."""
        shape = (len(rows), self.length)
        fields: dict[str, np.ndarray] = {
            name: np.zeros(shape, np.int32) for name in ("tokens", "types", "valid", "candidates")
        }
        fields |= {name: np.zeros(len(rows), np.int32) for name in ("starts", "ends")}
        fields["tokens"][:] = self.specials.pad
        fields["candidates"][:, 0] = 1
        weights = np.zeros(len(rows), np.float32)
        for b, row in enumerate(rows):
            if row < 0:
                continue
            question, start, end = (int(array[row]) for array in self.windows)
            texts = [self.texts[question], self.passages[question].ids[start:end]]
            ids, first = pairs.join(texts, self.length, self.specials, self.separators)
            pairs.fill(fields, (b,), ids, first, self.second_type)
            fields["candidates"][b, first : len(ids) - 1] = 1
            answer_start, answer_end = self.answers[question]
            if start <= answer_start and answer_end < end:
                fields["starts"][b], fields["ends"][b] = answer_start - start + first, answer_end - start + first
            weights[b] = answer_start != LOST
        return fields | {"weights": weights}


# Tokens of an answer where there is none, and where it has no token of the passage.
NONE, LOST = -1, -2


def answer_tokens(question: Question, passage: Passage) -> tuple[int, int]:
    """The first and the last token of the first answer; NONE without an answer, LOST if none of its text is a token."""
    if not question.answers:
        return NONE, NONE
    text, start = question.answers[0]
    first = int(np.searchsorted(passage.ends, start, "right"))
    last = int(np.searchsorted(passage.starts, start + len(text), "left")) - 1
    return (first, last) if first <= last else (LOST, LOST)


def plain(tokenizer: Tokenizer):
    """The tokenizer without the truncation and padding that a file from elsewhere may ask for."""
    if tokenizer.truncation is None and tokenizer.padding is None:
        return tokenizer
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def encode(texts: Sequence[str], tokenizer: Tokenizer, log: Log, name: str) -> list[Passage]:
    """Texts as tokens with their characters; those without a visible character are left out at the ends of a text."""
    passages = []
    if said := control_tokens.report(tokenizer, texts, name):
        log.info(said)
    with log.progress(f"tokenizing {name}", len(texts)) as advance:
        for start in range(0, len(texts), _BATCH):
            batch = list(texts[start : start + _BATCH])
            encodings = control_tokens.encode(tokenizer, batch)
            passages += [_passage(text, encoding) for text, encoding in zip(batch, encodings, strict=True)]
            advance(len(batch))
    return passages


def _passage(text: str, encoding) -> Passage:
    """The ids of an encoding, and the characters of its tokens."""
    offsets = np.array(encoding.offsets, np.int32).reshape(-1, 2)
    for token, (start, end) in enumerate(encoding.offsets):
        piece = text[start:end]
        if piece != (stripped := piece.strip()):
            before = len(piece) - len(piece.lstrip())
            offsets[token] = start + before, start + before + len(stripped)
    return Passage(np.array(encoding.ids, np.int32), offsets[:, 0], offsets[:, 1])
