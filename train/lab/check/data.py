"""Probes of the data: what is in both parts of it, what rows lose, and what the tokenizer makes of text."""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from train.data.corpus import TaskRows
from train.images.rows import ImageRows
from train.lab.check.result import Result, not_applicable
from train.lab.check.subject import Subject
from train.text import control_tokens

# Tokens of a passage that counts as copied (Brown et al. 2020, appendix C), the share of such passages that makes a
# text a copy, and the tokens of each side that are looked at.
_COPIED, _MOSTLY, _MAX_TOKENS = 13, 0.8, 5_000_000

# Batches whose labels are counted, texts that are decoded, tokens of each of these, and pictures that are.
_BATCHES, _DECODED, _LONGEST, _PICTURES = 100, 300, 400, 2000

Probe = Callable[[Subject], Result]


def of_texts(probe: Probe) -> Probe:
    """A probe of texts, which asks for them."""

    @functools.wraps(probe)
    def probe_texts(subject: Subject) -> Result:
        return not_applicable("rows are pictures without texts") if subject.tokenizer is None else probe(subject)

    return probe_texts


def duplicates(subject: Subject) -> Result:
    """Validation texts, or pictures, are not trained on."""
    train, valid = _keys(subject.corpus.train[0]), _keys(subject.corpus.valid)
    seen = set(train)
    copies = sum(key in seen for key in valid)
    valid_rows = subject.corpus.valid
    kind = "texts" if _digests(valid_rows) is None else "sounds" if _images(valid_rows) is None else "pictures"
    return Result(copies / max(1, len(valid)), 0.01, f"share of {len(valid):,} validation {kind} that are trained on")


def _keys(rows: TaskRows) -> Sequence[bytes | str]:
    """What is equal for equal examples: the content of pictures or sounds, else the tokens of texts."""
    digests = _digests(rows)
    return [ids.tobytes() for ids in _texts(rows)] if digests is None else digests


def _digests(rows: TaskRows) -> Sequence[str] | None:
    """What tells pictures or sounds apart; None of texts."""
    images = _images(rows)
    return getattr(rows if images is None else images, "digests", None)


def _images(rows: TaskRows) -> ImageRows | None:
    """The pictures of rows; None where they have none."""
    return getattr(rows, "images", None)


@of_texts
def near_duplicates(subject: Subject) -> Result:
    """Validation texts are not made of passages of the training text."""
    train, valid = (_passages(texts) for texts in _sides(subject))
    texts, totals = np.unique(valid.texts, return_counts=True)
    if not len(texts):
        return not_applicable(f"no validation text has {_COPIED} tokens")
    copied = np.bincount(valid.texts, np.isin(valid.hashes, train.hashes))[texts] / totals
    share = float((copied >= _MOSTLY).mean())
    detail = (
        f"share of {len(texts):,} validation texts with {_MOSTLY:.0%} of runs of {_COPIED} tokens in training texts"
    )
    return Result(share, 0.1, detail)


def _sides(subject: Subject) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The texts of the training and the validation data, of about `_MAX_TOKENS` tokens each."""
    return _texts(subject.corpus.train[0]), _texts(subject.corpus.valid)


def _texts(rows: TaskRows) -> list[np.ndarray]:
    """The token ids of texts, until there are enough."""
    texts, total = [], 0
    for ids in rows.example_ids():
        texts.append(np.asarray(ids, np.int64))
        total += len(ids)
        if total >= _MAX_TOKENS:
            break
    return texts


class _Passages(NamedTuple):
    """All runs of `_COPIED` tokens within a text: their hashes, uint64 [N], and their texts, int [N]."""

    hashes: np.ndarray
    texts: np.ndarray


def _passages(texts: list[np.ndarray]) -> _Passages:
    """The passages of texts."""
    ids = np.concatenate([np.zeros(0, np.int64), *texts]).astype(np.uint64)
    lengths = np.array([len(text) for text in texts], np.int64)
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(ids))  # tokens to the end of the text
    starts = np.flatnonzero(left >= _COPIED)
    hashes = np.zeros(len(starts), np.uint64)
    for n in range(_COPIED):
        hashes = (hashes + ids[starts + n] + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    return _Passages(hashes, np.repeat(np.arange(len(texts)), lengths)[starts])


@of_texts
def empty_texts(subject: Subject) -> Result:
    """Texts have tokens."""
    texts = list(itertools.chain(*_sides(subject)))
    empty = sum(not len(ids) for ids in texts) + subject.corpus.facts().get("empty", 0)
    return Result(empty / max(1, len(texts)), 0.001, f"share of {len(texts):,} texts without a token")


@of_texts
def truncated_texts(subject: Subject) -> Result:
    """Rows hold whole texts."""
    facts, length = subject.corpus.facts(), subject.job.run.batch.length
    share = getattr(subject.corpus.train[0], "cut", None)
    if share is None and "long" not in facts:
        return not_applicable("the rows count no text that loses its end")
    if share is None:
        share = facts["long"] / (len(subject.corpus.train[0]) + len(subject.corpus.valid) + facts["long"])
    return Result(share, 0.05, f"share of texts that are longer than --batch.length={length} and lose their end")


@of_texts
def unknown_tokens(subject: Subject) -> Result:
    """The tokenizer knows the characters of the text."""
    unknown = subject.specials.unk
    if unknown in (subject.specials.pad, subject.specials.sep):
        return not_applicable("the tokenizer has no token for what is unknown")
    train, valid = (np.concatenate([np.zeros(0, np.int64), *texts]) for texts in _sides(subject))
    shares = [float((ids == unknown).mean()) if len(ids) else 0.0 for ids in (train, valid)]
    detail = f"share of unknown tokens: {shares[0]:.3%} of the training, {shares[1]:.3%} of the validation text"
    return Result(max(shares), 0.01, detail)


def label_balance(subject: Subject) -> Result:
    """No label is nearly all there is, and the validation data have all that training has."""
    if not subject.targets or subject.spec[subject.targets].predicts not in ("C", "n"):
        return not_applicable("targets are no labels")
    corpus = subject.corpus
    train = _label_counts(subject, (corpus.batch(n) for n in range(_BATCHES)))
    valid = _label_counts(subject, itertools.islice(corpus.valid_batches(), _BATCHES))
    size = max(len(train), len(valid))
    missing = int(((np.pad(train, (0, size - len(train))) > 0) & (np.pad(valid, (0, size - len(valid))) == 0)).sum())
    share = float(train.max() / max(1, train.sum()))
    detail = f"share of the most frequent of {int((train > 0).sum())} labels"
    return Result(share, 0.95, f"{detail}; {missing} are missing in the validation data" if missing else detail)


@of_texts
def control_tokens_in_texts(subject: Subject) -> Result:
    """No text spells a control token, such as [MASK]."""
    counts = control_tokens.found_so_far
    mode = subject.job.run.data.control_tokens
    meaning = "control tokens" if mode == "keep" else "text"
    example = f", such as {counts.most_common(1)[0][0]}" if counts else ""
    detail = f"control tokens that the texts spell{example}; they are read as {meaning} (--data.control-tokens={mode})"
    return Result(float(counts.total()), 0.0 if mode == "keep" else float(counts.total()), detail)


def _label_counts(subject: Subject, batches) -> np.ndarray:
    """How often every label is a target."""
    labels = [batch[subject.targets][batch[subject.weights[0]] > 0] for batch in batches]
    return np.bincount(np.concatenate(labels))


@of_texts
def padding_share(subject: Subject) -> Result:
    """Rows are mostly text."""
    share = float(subject.corpus.padding)
    return Result(share, 0.75, "share of places of the training rows that hold no token")


@of_texts
def tokenizer_round_trip(subject: Subject) -> Result:
    """Tokens that become text, and tokens again, are the same tokens."""
    tokenizer, unknown = subject.tokenizer, subject.specials.unk
    assert tokenizer is not None
    texts = [ids[:_LONGEST] for ids in _texts(subject.corpus.valid) if len(ids) and unknown not in ids[:_LONGEST]]
    texts = texts[:: max(1, len(texts) // _DECODED)]
    if not texts:
        return not_applicable("every validation text has unknown tokens")
    decode = functools.partial(tokenizer.decode, skip_special_tokens=False)
    again = tokenizer.encode_batch([decode(ids.tolist()) for ids in texts], add_special_tokens=False)
    changed = sum(not _begins_like(encoding.ids, ids) for encoding, ids in zip(again, texts, strict=True))
    return Result(changed / len(texts), 0.05, f"share of {len(texts)} validation texts that come back changed")


def _begins_like(ids: list[int], expected: np.ndarray) -> bool:
    """Whether tokens are the same; the last ones may differ where a text was cut off within a word."""
    cut = 10 if len(expected) == _LONGEST else 0
    return ids[: len(expected) - cut] == expected[: len(expected) - cut].tolist()


def broken_pictures(subject: Subject) -> Result:
    """Pictures can be decoded, and have more than one colour."""
    sides = [_images(rows) for rows in (subject.corpus.train[0], subject.corpus.valid)]
    places = [(images, row) for images in sides if images is not None for row in range(len(images))]
    if None in sides:
        return not_applicable("rows have no pictures")
    places = places[:: -(-len(places) // _PICTURES)]
    broken = [str(images.pictures[row]) for images, row in places if images.is_broken(row)]
    example = f", such as {broken[0]}" if broken else ""
    return Result(len(broken) / len(places), 0.001, f"share of {len(places):,} pictures without content{example}")


PROBES = (
    duplicates,
    near_duplicates,
    empty_texts,
    truncated_texts,
    unknown_tokens,
    control_tokens_in_texts,
    label_balance,
    padding_share,
    tokenizer_round_trip,
    broken_pictures,
)
