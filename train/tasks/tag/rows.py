"""Rows of a tagger: sentences as pieces of words, the label of a word on its first piece.

A sentence that does not fit into a row is cut into windows that overlap. A word counts once, in the window in which it
has the most context (`train.data.windows.best_windows`).
"""

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from train import UserError
from train.data import windows
from train.data.labels import warn_of_one_name
from train.data.sources.files import Row
from train.data.text_rows import TextFields
from train.screens.console import Log
from train.tasks.tag.metric import OUTSIDE, Entity, entities, inside_starts, scheme
from train.tasks.tag.source import place_of
from train.text import control_tokens, tokenize
from train.text.special import SpecialTokens

# Sentences that are split at a time, and the multiple that the length of a row for predictions is.
_BATCH, _MULTIPLE = 1000, 16


class Pieces(NamedTuple):
    """Sentences as pieces: the ids of each, the place of the first piece of every word, and the count of words that
    have no characters for the tokenizer, which are read as unknown."""

    ids: list[np.ndarray]
    firsts: list[np.ndarray]
    unreadable: int


def split(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], log: Log, name: str) -> Pieces:
    """The pieces of sentences of words. The progress bar shows `name`.

    A byte-level tokenizer reads every word with the space before it, as models of transformers were trained.
    """
    from tokenizers import decoders

    space = " " if isinstance(tokenizer.decoder, decoders.ByteLevel) else ""
    unknown = tokenize.special_tokens(tokenizer).unk
    pieces = Pieces([], [], 0)
    unreadable = 0
    if said := control_tokens.report(tokenizer, sentences, name):
        log.info(said)
    with log.progress(f"tokenizing {name}", len(sentences)) as advance:
        for start in range(0, len(sentences), _BATCH):
            batch = [[space + word for word in words] for words in sentences[start : start + _BATCH]]
            encodings = control_tokens.encode(tokenizer, batch, is_pretokenized=True)
            for words, encoding in zip(batch, encodings, strict=True):
                ids, firsts, missing = _words_of(encoding, len(words), unknown)
                pieces.ids.append(ids)
                pieces.firsts.append(firsts)
                unreadable += missing
            advance(len(batch))
    if unreadable:
        log.info(f"{unreadable:,} words of the {name} have no characters that the tokenizer reads: they are [UNK]")
    return pieces._replace(unreadable=unreadable)


def _words_of(encoding, count: int, unknown: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Ids, the first piece of each of `count` words, and how many had no piece and were given `unknown`."""
    ids, owners = np.asarray(encoding.ids, np.int32), np.asarray(encoding.word_ids, np.int64)
    missing = np.setdiff1d(np.arange(count), owners)
    places = np.searchsorted(owners, missing)
    ids, owners = np.insert(ids, places, unknown), np.insert(owners, places, missing)
    return ids, np.searchsorted(owners, np.arange(count)), len(missing)


class Sentences:
    """Rows of windows of sentences, each `[CLS] pieces [SEP]`, padded to `length`, or to the longest one with `fit`.

    words: the words of each sentence
    labels: the class of every word of each sentence, int [words]
    cut_sentences: how many have more than one window
    lexicon: what the training text says of words, where it is known
    """

    buckets, independent_rows = None, True
    text_fields = TextFields(by_token=("tokens", "valid", "labels", "weights", "guesses", "logits"))
    lexicon: "Lexicon | None" = None

    def __init__(
        self,
        words: Sequence[Sequence[str]],
        labels: Sequence[np.ndarray],
        pieces: Pieces,
        specials: SpecialTokens,
        length: int,
        stride: int | None = None,
        fit: bool = False,
    ):
        self.words, self.labels, self.pieces = words, labels, pieces
        self.specials = specials
        lengths = [len(ids) for ids in pieces.ids]
        self.windows = windows.cut(lengths, length - 2, stride or max(1, (length - 2) // 2))
        self._best = windows.best_windows(self.windows, lengths)
        self._rows = np.cumsum([0, *np.bincount(self.windows.texts, minlength=len(lengths))])
        self.cut_sentences = int((np.diff(self._rows) > 1).sum())
        self.tokens = sum(lengths)
        sizes = self.windows.ends - self.windows.starts + 2
        longest = -(-int(sizes.max(initial=0)) // _MULTIPLE) * _MULTIPLE
        self.length = length = min(length, longest) if fit else length
        self.sizes, self.padding = sizes, float(1 - sizes.mean() / length) if len(sizes) else 0.0

    def __len__(self):
        return len(self.windows.texts)

    def example_ids(self) -> Iterator[np.ndarray]:
        """The ids of every sentence."""
        return iter(self.pieces.ids)

    def places(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """The words that count in a row, and the places of their labels in it, int [words] both."""
        sentence, start = self.windows.texts[row], self.windows.starts[row]
        firsts = self.pieces.firsts[sentence]
        words = np.flatnonzero(self._best[sentence][firsts] == row)
        return words, firsts[words] - start + 1

    def batch(self, rows: np.ndarray, rng: np.random.Generator | None = None) -> dict[str, np.ndarray]:
        """The fields of single windows, of which a batch is made (`train.data.text_rows`)."""
        shape = (len(rows), self.length)
        fields: dict[str, np.ndarray] = {name: np.zeros(shape, np.int32) for name in ("tokens", "valid", "labels")}
        fields["weights"] = np.zeros(shape, np.float32)
        fields["tokens"][:] = self.specials.pad
        for b, row in enumerate(rows):
            if row < 0:
                continue
            sentence, start, end = (int(column[row]) for column in self.windows)
            ids = self.pieces.ids[sentence][start:end]
            fields["tokens"][b, : len(ids) + 2] = [self.specials.cls, *ids, self.specials.sep]
            fields["valid"][b, : len(ids) + 2] = 1
            words, places = self.places(row)
            fields["labels"][b, places] = self.labels[sentence][words]
            fields["weights"][b, places] = 1
        return fields

    def join(self, values: np.ndarray) -> list[np.ndarray]:
        """Values [R,T,...] of the first rows -> those of the words of each sentence all of whose windows are there."""
        count = int(np.searchsorted(self._rows, len(values), side="right")) - 1
        return [
            np.concatenate([values[row, self.places(row)[1]] for row in range(first, last)])
            for first, last in zip(self._rows[:count], self._rows[1 : count + 1], strict=True)
        ]


class Lexicon(NamedTuple):
    """What the training text says of words: its entities, and the class that each word has most often.

    entities: the words of each
    classes: of words; `default` is the most frequent class of all
    """

    entities: frozenset[tuple[str, ...]]
    classes: dict[str, int]
    default: int

    @classmethod
    def of(
        cls, words: Sequence[Sequence[str]], labels: Sequence[np.ndarray], spans: Sequence[Sequence[Entity]]
    ) -> "Lexicon":
        """The lexicon of sentences with their labels and entities. Of equally frequent classes the first one counts."""
        counts: dict[str, Counter[int]] = defaultdict(Counter)
        for sentence, classes in zip(words, labels, strict=True):
            for word, label in zip(sentence, classes.tolist(), strict=True):
                counts[word][label] += 1
        total: Counter[int] = sum(counts.values(), Counter())
        surfaces = {
            tuple(sentence[entity.start : entity.end])
            for sentence, members in zip(words, spans, strict=True)
            for entity in members
        }
        frequent = {word: _most_frequent(classes) for word, classes in counts.items()}
        return cls(frozenset(surfaces), frequent, _most_frequent(total))

    def guess(self, words: Sequence[str]) -> list[int]:
        """The class that each word has most often."""
        return [self.classes.get(word, self.default) for word in words]

    def only(
        self, words: Sequence[Sequence[str]], sentences: Sequence[Sequence[Entity]], seen: bool
    ) -> list[list[Entity]]:
        """The entities of sentences whose words are an entity of the training text, or are none."""
        return [
            [entity for entity in members if (tuple(sentence[entity.start : entity.end]) in self.entities) == seen]
            for sentence, members in zip(words, sentences, strict=False)
        ]


def _most_frequent(counts: Counter[int]) -> int:
    return min(counts, key=lambda label: (-counts[label], label))


def classes_of(rows: Sequence[Row]) -> list[str]:
    """The labels of sentences in the order of the model's outputs: O, then by type. Raises UserError for one label.

    Warns where the first line of a file may name the columns: its label stands nowhere else.
    """
    labels = Counter(label for row in rows for label in row["tags"])
    for row in (row for row in rows if row.get("line") == 1):
        label, word = row["tags"][0], row["tokens"][0]
        if labels[label] == 1 and label[1:2] != "-":
            warnings.warn(
                f"{row['where']}, line 1 has the only word of the tag {label!r}; if the line names the columns, say "
                f"--data.field={word} --data.label={label}",
                stacklevel=2,
            )
    if len(labels) < 2:
        raise UserError(f"every word is tagged {min(labels)!r}; there must be two labels or more to tell apart")
    names = sorted(labels, key=lambda label: (label != OUTSIDE, label.partition("-")[2], label))
    warn_of_one_name(names)
    return names


def encode_tags(rows: Sequence[Row], classes: Sequence[str]) -> list[np.ndarray]:
    """The class of every word of each sentence, int32 [words]. Raises UserError for a tag that is none of them."""
    index = {name: label for label, name in enumerate(classes)}
    for row in rows:
        for place, name in enumerate(row["tags"]):
            if name not in index:
                raise UserError(
                    f"{place_of(row, place)} has the tag {name!r}, which never occurs in the training data (it has "
                    f"{', '.join(classes[:20])}); correct it"
                )
    return [np.array([index[name] for name in row["tags"]], np.int32) for row in rows]


def describe_tags(sentences: Sequence[Sequence[str]]) -> str:
    """What the log says of the tags of the training text: their scheme, and the types of entities."""
    kind, labels = scheme(sentences), {label for tags in sentences for label in tags}
    if kind == "labels":
        return f"tags: {len(labels)} labels that mark no entities; they are measured by accuracy"
    types = sorted({entity.type for tags in sentences for entity in entities(tags)})
    errors = inside_starts(sentences) if kind == "IOB2" else 0
    correction = f"; {errors:,} entities begin with I-, and are read as if B- stood there" if errors else ""
    return f"tags: {kind}, entities of {len(types)} types: {', '.join(types)}{correction}"
