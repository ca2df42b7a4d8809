"""The rows of phases: each phase goes on where the one before it has stopped reading."""

import dataclasses
from collections import Counter

import numpy as np
import pytest

from train import UserError
from train.data import phased
from train.data.corpus import Corpus
from train.data.mixture import Phase
from train.tasks import resolve


class Rows:
    """So many rows, whose fields are their numbers and a draw."""

    buckets, independent_rows, padding = None, True, 0.0

    def __init__(self, count, length):
        self.count, self.tokens = count, count * length

    def __len__(self):
        return self.count

    def batch(self, rows, rng):
        return {"rows": rows, "draws": rng.integers(1 << 60, size=len(rows))}


def run_of(size, length, rate=0.15, **data):
    run = resolve.resolve([f"--batch.size={size}", f"--batch.length={length}", f"--task.rate={rate}"], None, None)[0]
    return dataclasses.replace(run, data=dataclasses.replace(run.data, **data))


def corpus_of(run, shares=None, tokens=9600):
    """A text of so many tokens in rows; of two sources where there are shares."""
    count = tokens // run.batch.length
    sources = {"sources": {"web": count // 2, "books": count // 2}, "mixture": [[0, shares]]} if shares else {}
    parts = [Rows(count // 2, run.batch.length)] * 2 if shares else [Rows(count, run.batch.length)]
    return Corpus(run, None, parts, Rows(4, run.batch.length), {}, sources)


def corpora_of(runs, firsts, shares=None):
    of = shares or {}
    base = corpus_of(run_of(4, 99))
    return phased.corpora(
        list(zip(runs, firsts, strict=True)), base, lambda run: corpus_of(run, of.get(run.data.mixture))
    )


def rows_read(corpora, firsts, stop):
    """The rows that each phase reads, with their segmentations."""
    ends = [*firsts[1:], stop]
    return [
        Counter(
            (int(part), int(row))
            for n in range(first, end)
            for part, row in zip(*corpus.rows(n + corpus.skipped), strict=True)
        )
        for corpus, first, end in zip(corpora, firsts, ends, strict=True)
    ]


def test_equal_rows_are_read_once_an_epoch_across_a_border():
    """100 rows: 10 batches of 6, then 20 of 2 with other masks, which are all rows once; and a second epoch."""
    runs = [run_of(6, 96, 0.3), run_of(2, 96, 0.15), run_of(2, 96, 0.05)]
    firsts = [0, 10, 20]
    first, second, third = rows_read(corpora_of(runs, firsts), firsts, 80)
    assert (len(first), len(second), len(first + second)) == (60, 20, 80), "no row comes twice in the first epoch"
    assert first + second + third == Counter({(0, row): 2 for row in range(100)})


def test_longer_rows_go_on_at_the_same_share_of_the_text():
    """Half of an epoch in rows of 48; then rows of 96 from the middle of their epoch on."""
    runs, firsts = [run_of(10, 48), run_of(5, 96)], [0, 10]
    corpora = corpora_of(runs, firsts)
    assert corpora[1].skipped == 10 - 10, "100 rows, of which batch 10 of 5 begins the second half"
    batches = [corpora[1].rows(n + corpora[1].skipped)[1] for n in range(10, 20)]
    assert len(np.unique(np.concatenate(batches))) == 50


def test_a_batch_is_a_function_of_its_number_and_the_recipe():
    runs, firsts = [run_of(6, 96, 0.3), run_of(2, 48, 0.15)], [0, 7]
    corpora, again = corpora_of(runs, firsts), corpora_of(runs, firsts)
    for n in (11, 7, 30):
        for name, field in corpora[1].batch(n).items():
            np.testing.assert_array_equal(field, again[1].batch(n)[name])
    draws = [
        part.batch(n)["draws"].tolist()
        for part, numbers in zip(corpora, ((0, 6), (7, 8, 30)), strict=True)
        for n in numbers
    ]
    flat = [draw for batch in draws for draw in batch]
    assert len(set(flat)) == len(flat), "no two steps draw the same"


def test_sources_are_counted_through_all_phases():
    """A source that no earlier phase has read begins with its first row; the other one where it has stopped."""
    shares = {"web:1": {"web": 1, "books": 0}, "web:1,books:3": {"web": 1, "books": 3}}
    runs = [run_of(5, 96, mixture="web:1"), run_of(8, 96, 0.3, mixture="web:1,books:3")]
    firsts = [0, 8]
    corpora = corpora_of(runs, firsts, shares)
    assert corpora[1].shares == [Phase(0, shares["web:1"]), Phase(40, shares["web:1,books:3"])]
    first, second = rows_read(corpora, firsts, 13)
    assert Counter(part for part, _ in first.elements()) == {0: 40}
    assert Counter(part for part, _ in second.elements()) == {0: 10, 1: 30}
    assert set((first + second).values()) == {1}, "no row comes twice"


def test_a_mixture_with_phases_of_its_own():
    run = run_of(5, 96, mixture="file.json")
    corpus = corpus_of(run, {"web": 1, "books": 1})
    mixture = [[0, {"web": 1, "books": 1}], [9, {"web": 1, "books": 0}]]
    corpus.facts = lambda: {**Corpus.facts(corpus), "mixture": mixture}
    with pytest.raises(
        UserError, match=r"--data\.mixture=file\.json has phases of its own; say data\.mixture in those"
    ):
        phased.corpora([(run, 0)], corpus_of(run_of(4, 99)), lambda run: corpus)
