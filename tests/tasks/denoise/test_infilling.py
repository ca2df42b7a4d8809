"""BART's noise against the definition, token by token (Lewis et al. 2020; fairseq/data/denoising_dataset.py)."""

import itertools

import numpy as np
import pytest
from tasks.denoise.independence import assert_independent

from train.data.tokens import TokenizedTexts
from train.tasks.denoise import infilling
from train.tasks.denoise.infilling import DrawnSpans, Infilling, InfillingRows
from train.tasks.denoise.noise import Corrupted
from train.tasks.denoise.options import Denoise
from train.text.tokenize import SequenceTemplate

PAD, START, END, MASK, STOP = 0, 2, 3, 4, 9
TEMPLATE = SequenceTemplate([2], [END], END, PAD)
TEXT = TokenizedTexts(np.random.default_rng(0).integers(9, 40, 5000), np.array([0, 1200, 1201, 4000, 5000]))


def rows_of(length=48, rate=0.3, span=3.0, stops=(STOP,), jitter=True):
    return InfillingRows(TEXT, Infilling(rate, span, MASK, stops), TEMPLATE, length, jitter)


def filled_in(ids, starts, lengths):
    """As the published code does it: starts become masks, then every span deletes what follows, token by token."""
    written, kept = list(ids), [True] * len(ids)
    for start in starts:
        written[start] = MASK
    for start, length in zip(starts, lengths, strict=True):
        for place in range(start + 1, min(start + length, len(ids))):
            kept[place] = False
    return [token for token, keep in zip(written, kept, strict=True) if keep]


def sentences_of(ids):
    """Sentences end behind a stop that none precedes."""
    ends = [n + 1 for n, token in enumerate(ids) if token == STOP and (n == 0 or ids[n - 1] != STOP)]
    return [ids[start:end] for start, end in itertools.pairwise([0, *ends, len(ids)]) if end > start]


def test_spans_are_those_of_the_definition():
    """1,000 texts: lengths add up to the share of tokens, starts differ, and the text without the spans is that of the
    published code."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        noise = Infilling(rng.uniform(0.05, 0.9), rng.uniform(1, 6), MASK, ())
        sizes = rng.integers(2, 60, 50)
        ids, valid = rng.integers(9, 99, (50, 60)), np.arange(60) < sizes[:, None]
        spans = infilling.draw_spans(rng, sizes, noise, 60)
        side = infilling.infill(ids, valid, spans, MASK)
        for row, n in enumerate(sizes):
            lengths = spans.lengths[row][spans.lengths[row] > 0]
            starts = spans.starts[row][spans.lengths[row] > 0].tolist()
            assert lengths.sum() == np.ceil(noise.rate * n)
            assert len(set(starts)) == len(starts)
            assert max(starts) < n
            expected = filled_in(ids[row, :n], starts, lengths)
            written = side.ids[row][side.kept[row]]
            assert written.tolist() == [int(token) for token in expected]
            assert (side.is_sentinel[row][side.kept[row]] == (written == MASK)).all()


def test_lengths_follow_poisson():
    """Mean and variance of 3 in a long text; a share of exp(-3) has length 0 and becomes insertions."""
    spans = infilling.draw_spans(np.random.default_rng(0), np.full(400, 500), Infilling(0.3, 3.0, MASK, ()), 500)
    drawn = [row[row > 0][:-1] for row in spans.lengths]  # the last span is cut
    positive, zeros = np.concatenate(drawn), spans.inserted.sum()
    count = len(positive) + zeros
    assert positive.sum() / count == pytest.approx(3.0, abs=0.06)
    assert (positive**2).sum() / count - (positive.sum() / count) ** 2 == pytest.approx(3.0, abs=0.15)
    assert zeros / count == pytest.approx(np.exp(-3), abs=0.006)


def test_insertions_have_every_place_equally_often():
    side = Corrupted(np.tile(np.arange(10, 14), (9000, 1)), np.ones((9000, 4), bool), np.zeros((9000, 4), bool))
    order = np.random.default_rng(0).random((9000, 8))
    written = infilling.insert(side, order, np.full(9000, 2), MASK, 8)
    assert (written.kept.sum(1) == 6).all()
    rows = written.ids[:, :6]
    assert (rows[rows != MASK].reshape(-1, 4) == np.arange(10, 14)).all()
    pairs = [tuple(np.flatnonzero(row == MASK)) for row in rows]
    counts = np.array([pairs.count(pair) for pair in itertools.combinations(range(6), 2)])
    assert ((counts - 600) ** 2 / 600).sum() < 36.1, "chi squared of 14 degrees, p = 0.001"
    full = infilling.insert(side, order, np.full(9000, 2), MASK, 5)
    assert (full.kept.sum(1) == 5).all(), "what has no place is left out"


def test_sentences_are_permuted():
    """Each text has the same sentences; three of them have each of their orders equally often."""
    rng = np.random.default_rng(0)
    ids = rng.integers(8, 12, (1000, 20))
    valid = np.arange(20) < rng.integers(1, 21, 1000)[:, None]
    written = infilling.permuted(ids, valid, rng.random(ids.shape), [STOP])
    for before, after, n in zip(ids.tolist(), written.tolist(), valid.sum(1), strict=True):
        assert after[n:] == before[n:]
        sentences, rest = sentences_of(before[:n]), after[:n]
        for order in itertools.permutations(sentences) if len(sentences) < 6 else ():
            if list(itertools.chain(*order)) == rest:
                break
        else:
            assert len(sentences) >= 6, "no order of the sentences"
        assert sorted(rest) == sorted(before[:n])
    text = np.tile([10, STOP, 11, STOP, 12, STOP], (6000, 1))
    written = infilling.permuted(text, np.ones(text.shape, bool), rng.random(text.shape), [STOP])
    orders = [tuple(row) for row in written[:, ::2].tolist()]
    counts = np.array([orders.count(order) for order in itertools.permutations([10, 11, 12])])
    assert ((counts - 1000) ** 2 / 1000).sum() < 20.5, "chi squared of 5 degrees, p = 0.001"


def test_rows_are_those_of_the_definition():
    """1,000 rows: the targets are a piece of the text; the inputs are its sentences, spans and insertions."""
    rows = rows_of()
    lost = 0
    for seed in range(20):
        numbers = np.random.default_rng(seed).integers(0, len(rows), 50)
        batch = rows.batch(numbers, np.random.default_rng(seed))
        for index in range(50):
            targets = batch["targets"][index][batch["weights"][index] > 0].tolist()
            assert [targets[0], targets[-1]] == [2, END]
            text = targets[1:-1]
            assert np.array(text, np.int64).tobytes() in TEXT.ids.astype(np.int64).tobytes()
            read = batch["target"][index][batch["weights"][index] > 0].tolist()
            assert read == [END, *targets[:-1]]
            inputs = batch["tokens"][index][batch["valid"][index] > 0].tolist()
            assert [inputs[0], inputs[-1]] == [2, END]
            kept = [token for token in inputs[1:-1] if token != MASK]
            assert len(inputs) <= len(targets)
            lost += len(text) - len(kept)
            for token in set(kept):
                assert kept.count(token) <= text.count(token)
    tokens = 1000 * 46
    assert 0.2 < lost / tokens < 0.3, "spans meet, so fewer than 30 % are lost"


def test_a_batch_does_not_depend_on_rows_of_other_processes():
    assert_independent(rows_of())


def test_a_span_within_another_has_no_mask():
    ids, valid = np.arange(10, 18)[None], np.ones((1, 8), bool)
    spans = DrawnSpans(np.array([[1, 2, 6]]), np.array([[3, 1, 5]]), np.array([0]))
    side = infilling.infill(ids, valid, spans, MASK)
    assert side.ids[side.kept].tolist() == [10, MASK, 14, 15, MASK]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"noise": "infilling", "mixture": "r:1"}, "mixture=r:1 mixes noise=spans"),
        ({"permute": True}, "permute=true needs noise=infilling"),
    ],
)
def test_bad_options(options, says):
    with pytest.raises(ValueError, match=says):
        Denoise(**options)
