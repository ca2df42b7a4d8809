"""Sentence pairs: what a sentence is, how stretches are cut, and what follows what."""

import itertools

import numpy as np
import pytest

from train import UserError
from train.data import pairs
from train.data.tokens import TokenizedTexts
from train.screens.console import Log
from train.settings.schema import Batch, Run
from train.settings.schema import Tokenizer as Options
from train.tasks.mlm.options import Mlm
from train.tasks.mlm.rows import SentencePairs, plan, sentences
from train.tasks.mlm.task import make_corpus
from train.text import tokenize
from train.text.special import SpecialTokens

SPECIALS = SpecialTokens(0, 1, 2, 3, 4)


def test_sentences():
    documents = ['He said "No." Then he left. It was 5 p.m. and dark!\n\nno capital here', "One. Two? three.", "alone"]
    texts, document = sentences(documents)
    assert [sentence.strip() for sentence in texts] == [
        'He said "No."', "Then he left.", "It was 5 p.m. and dark!", "no capital here", "One.", "Two? three.", "alone"
    ]  # fmt: skip
    assert document.tolist() == [0, 0, 0, 0, 1, 1, 2]
    assert "".join(texts[:4]) == documents[0], "nothing is lost"


def test_single_sentences_have_nothing_that_follows():
    with pytest.raises(
        UserError, match=r"--task.nsp=true needs documents of two sentences or more, and each document here has one"
    ):
        sentences(["one sentence.", "another one"])


def test_stretches_stay_in_their_document_and_have_two_sentences():
    rng = np.random.default_rng(0)
    document = np.repeat(np.arange(40), rng.integers(1, 12, 40))
    lengths = rng.integers(1, 20, len(document))
    firsts, lasts = plan(lengths, document, 30)
    assert (document[firsts] == document[lasts - 1]).all()
    assert (lasts - firsts >= 2).all()
    assert (firsts[1:] >= lasts[:-1]).all(), "no sentence twice"
    totals = np.array([lengths[first:last].sum() for first, last in zip(firsts, lasts, strict=True)])
    before = np.array([lengths[first : last - 1].sum() for first, last in zip(firsts, lasts, strict=True)])
    assert ((before < 30) | (lasts - firsts == 2)).all(), "a sentence more only while there is room"
    ends = np.append(document[1:] != document[:-1], True)[lasts - 1]
    assert ((totals >= 30) | ends).all(), "shorter only at the end of a document"
    alone = np.bincount(document) == 1
    assert not alone[document[firsts]].any()


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ((3, 4), (3, 4)),
        ((20, 3), (10, 3)),
        ((3, 20), (3, 10)),
        ((20, 20), (6, 7)),
        ((20, 19), (7, 6)),
        ((0, 20), (0, 13)),
    ],
)
def test_join_shortens_the_longer_text(sizes, kept):
    a, b = np.arange(100, 100 + sizes[0]), np.arange(200, 200 + sizes[1])
    row, second = pairs.join([a, b], 16, SPECIALS)
    assert row.tolist() == [2, *a[: kept[0]], 3, *b[: kept[1]], 3]
    assert second == kept[0] + 2


def test_join_cuts_as_tokenizers_does():
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"{side}{place}": place + 20 * (side == "b") for side in "ab" for place in range(10)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="a0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    for length in range(1, 12):
        tokenizer.enable_truncation(length)
        for m, n in itertools.product(range(1, 10), repeat=2):
            texts = " ".join(f"a{place}" for place in range(m)), " ".join(f"b{place}" for place in range(n))
            row, second = pairs.join([np.arange(m), 20 + np.arange(n)], length + 3, SPECIALS)
            ids = tokenizer.encode(*texts).ids
            assert [*row[1 : second - 1], *row[second:-1]] == ids, (length, m, n)


def test_join_of_one_text():
    row, second = pairs.join([np.arange(100, 120)], 8, SPECIALS)
    assert row.tolist() == [2, 100, 101, 102, 103, 104, 105, 3]
    assert second == 8


class Plain:
    """A masker that hides nothing."""

    specials = SPECIALS

    def __call__(self, rng, fields):
        return fields


@pytest.fixture(scope="module")
def rows():
    """30 documents of sentences; token = 10 + number of the sentence, so that a row tells where it comes from."""
    rng = np.random.default_rng(1)
    document = np.repeat(np.arange(30), rng.integers(2, 9, 30))
    lengths = rng.integers(2, 6, len(document))
    text = TokenizedTexts(np.repeat(np.arange(len(document)) + 10, lengths), np.concatenate([[0], np.cumsum(lengths)]))
    return SentencePairs(text, document, 24, Plain())


def test_batch(rows):
    chosen = np.tile(np.arange(len(rows)), 40)
    batch = rows.batch(chosen, np.random.default_rng(0))
    assert abs(batch["next"].mean() - 0.5) < 5 * 0.5 / len(chosen) ** 0.5
    assert batch["pairs"].all()
    for row, tokens, types, segments, is_random in zip(
        chosen, *(batch[name] for name in ("tokens", "types", "segments", "next")), strict=True
    ):
        first, last = rows.plan.firsts[row], rows.plan.lasts[row]
        end = np.flatnonzero(tokens == 3)
        assert tokens[0] == 2
        assert len(end) == 2
        assert segments.tolist() == [1] * (end[1] + 1) + [0] * (23 - end[1])
        assert types.tolist() == [0] * (end[0] + 1) + [1] * (end[1] - end[0]) + [0] * (23 - end[1])
        a, b = tokens[1 : end[0]] - 10, tokens[end[0] + 1 : end[1]] - 10
        assert len(a)
        assert len(b)
        assert a[0] == first
        if is_random:
            assert rows.document[b[0]] != rows.document[first]
            assert len(set(rows.document[b])) == 1, "B is of one document"
        else:
            assert first < b[0] < last
            assert b[-1] <= last - 1
            np.testing.assert_array_equal(np.unique(b), np.arange(b[0], b[-1] + 1))
            assert a[-1] < b[0]


def test_any_other_document_may_follow(rows):
    """All sentences of other documents begin a random B, about equally often."""
    rng = np.random.default_rng(2)
    first, last = rows.plan.firsts[3], rows.plan.lasts[3]
    drawn = np.bincount([rows._random_sentence(first, last, rng) for _ in range(20_000)], minlength=len(rows.document))
    is_other = rows.document != rows.document[first]
    assert not drawn[~is_other].any()
    share = 20_000 / is_other.sum()
    assert np.abs(drawn[is_other] - share).max() < 5 * share**0.5


def test_one_document_alone():
    text = TokenizedTexts(np.arange(40), np.arange(0, 41, 4))
    rows = SentencePairs(text, np.zeros(10, int), 16, Plain())
    rng = np.random.default_rng(0)
    first, last = rows.plan.firsts[0], rows.plan.lasts[0]
    assert {rows._random_sentence(first, last, rng) for _ in range(200)} == set(range(10)) - set(range(first, last))


def test_rows_that_do_not_count(rows):
    batch = rows.batch(np.array([0, -1]), np.random.default_rng(0))
    assert batch["pairs"].tolist() == [1, 0]
    assert (batch["tokens"][1] == SPECIALS.pad).all()
    assert not batch["segments"][1].any()


def test_corpus_of_pairs():
    """Pure in (seed, n), with masks and pairs of its own each time."""
    rng = np.random.default_rng(0)
    words = "the cat dog bird sat ran flew over under mat house tree".split()
    documents = [
        "".join(" ".join(rng.choice(words, 6)).capitalize() + ". " for _ in range(rng.integers(3, 20)))
        for _ in range(60)
    ]
    run = Run(task=Mlm(nsp=True), batch=Batch(size=4, length=32))
    tokenizer = tokenize.train(Options(vocab=300), documents)
    corpus, same = (make_corpus(run, tokenizer, documents[:50], documents[50:], Log()) for _ in range(2))
    fields = {"tokens", "segments", "positions", "types", "next", "pairs", "where", "targets", "weights", "words"}
    for n in (0, 7):
        a, b = corpus.batch(n), same.batch(n)
        assert a.keys() == fields
        assert all((a[name] == b[name]).all() for name in fields)
    *_, last = corpus.valid_batches()
    assert last["pairs"].sum() == (len(corpus.valid) % 4 or 4)
    assert not last["weights"][last["pairs"] == 0].any()
