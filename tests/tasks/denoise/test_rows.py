"""Rows of denoising against the definition, token by token (Raffel et al. 2020; t5/data/preprocessors.py)."""

import itertools
from collections import Counter

import numpy as np
import pytest
from tasks.denoise.independence import assert_independent

from train.data.tokens import TokenizedTexts
from train.tasks.denoise import noise
from train.tasks.denoise.options import Denoise, Denoiser
from train.tasks.denoise.rows import DenoisingRows
from train.text.tokenize import SequenceTemplate

PAD, END, START = 0, 3, 2
TEMPLATE = SequenceTemplate([], [END], START, PAD)
VOCAB = 1000
SENTINELS = [VOCAB - 1 - index for index in range(200)]
TEXT = TokenizedTexts(np.random.default_rng(0).integers(10, 700, 5000), np.array([0, 1200, 1201, 4000, 5000]))


def rows_of(length=64, target_length=64, template=TEMPLATE, jitter=False, **options):
    return DenoisingRows(TEXT, Denoise(**options).denoisers, template, SENTINELS, length, target_length, jitter)


def expected_counts(n, rate, span):
    """Noise tokens and spans of n tokens."""
    noise_tokens = min(max(round(n * rate), 1), n - 1)
    return noise_tokens, min(max(round(noise_tokens / span), 1), n - noise_tokens)


def marked(ids, removed):
    """What is kept, with a sentinel that counts down from the end of the vocabulary for every run that is removed."""
    written, runs = [], 0
    for token, (before, now) in zip(ids, itertools.pairwise([False, *removed]), strict=True):
        if not now:
            written.append(int(token))
        elif not before:
            runs += 1
            written.append(VOCAB - runs)
    return written


def tokens_of(row, weights):
    return row[weights > 0].tolist()


@pytest.mark.parametrize(
    ("length", "sizes"),
    [
        (512, [(568, 512, 114), (588, 512, 100), (766, 512, 512), (908, 512, 512), (600, 512, 92), (1006, 512, 512)]),
        (128, [(141, 128, 29)]),
        (64, [(70, 64, 14)]),
    ],
)
def test_texts_that_fill_a_row(length, sizes):
    """Lengths of texts, inputs and targets that T5's and UL2's code have."""
    denoisers = [(0.15, 3), (0.15, 8), (0.5, 3), (0.5, 8), (0.15, 64), (0.5, 64)]
    for (rate, span), expected in zip(denoisers, sizes, strict=False):
        assert noise.row_sizes(Denoiser(1.0, rate, span), length, 1)[:3] == expected


def test_masks_of_random_texts():
    """1,000 texts: as many noise tokens and runs as the definition says, the rest first, noise last."""
    rng = np.random.default_rng(1)
    lengths, rates, spans = rng.integers(2, 120, 1000), rng.uniform(0.05, 0.9, 1000), rng.uniform(1, 12, 1000)
    counts = noise.counts_of(lengths, rates, spans)
    masks = noise.span_mask(rng, lengths, counts, 130)
    for n, rate, span, mask in zip(lengths.tolist(), rates.tolist(), spans.tolist(), masks, strict=True):
        runs = [(is_noise, len([*run])) for is_noise, run in itertools.groupby(mask[:n].tolist())]
        assert (int(mask.sum()), len(runs) // 2) == expected_counts(n, rate, span)
        assert [is_noise for is_noise, _ in runs] == [False, True] * (len(runs) // 2)
        assert not mask[n:].any()


def test_lengths_of_runs_are_uniform():
    """All ways to write 6 as three positive numbers, and 2 as one, equally often: chi squared of 9 degrees."""
    totals, parts = np.tile([6, 2], 10_000), np.tile([3, 1], 10_000)
    sums = noise.composition(np.random.default_rng(0), totals, parts, 9)
    assert (sums[1::2] == [2, 0, 0]).all()
    observed = Counter(map(tuple, sums[::2].tolist()))
    assert len(observed) == 10
    assert sum((count - 1000) ** 2 / 1000 for count in observed.values()) < 27.9  # p = 0.001


@pytest.mark.parametrize("options", [{}, {"rate": 0.5, "span": 2.0}, {"mixture": "r:2,s:1,x:4"}])
def test_rows_are_those_of_the_definition(options):
    """1,000 rows: inputs, targets and what the decoder reads, from the pieces and what is left out of each."""
    rows = rows_of(jitter=True, **options)
    for seed in range(20):
        numbers = np.random.default_rng(seed).integers(0, len(rows), 50)
        batch = rows.batch(numbers, np.random.default_rng(seed))
        pieces = rows._pieces(numbers, np.random.default_rng(seed))
        for index in range(50):
            n = pieces.valid[index].sum()
            ids, removed = pieces.ids[index, :n], pieces.removed[index, :n]
            assert bytes(ids) in bytes(TEXT.ids), "a piece of the text"
            if pieces.has_spans[index]:
                inputs, targets = marked(ids, removed), marked(ids, ~removed)
            else:
                cut = removed.argmax()
                assert 0 < cut < n
                inputs, targets = ids[:cut].tolist(), ids[cut:].tolist()
            assert tokens_of(batch["tokens"][index], batch["valid"][index]) == [*inputs, END]
            assert tokens_of(batch["targets"][index], batch["weights"][index]) == [*targets, END]
            assert tokens_of(batch["target"][index], batch["weights"][index]) == [START, *targets]
            is_word = [token < 700 and token != END for token in [*targets, END]]
            assert batch["words"][index][: len(is_word)].tolist() == is_word
            assert not batch["words"][index][len(is_word) :].any()


def test_full_rows_have_no_padding_and_give_the_text_back():
    rows = rows_of(64, 14)
    numbers = np.arange(len(rows) - 1)
    batch = rows.batch(numbers, np.random.default_rng(0))
    assert rows.padding == 0
    assert batch["valid"].all()
    assert batch["weights"].all()
    restored = []
    for inputs, targets in zip(batch["tokens"].tolist(), batch["targets"].tolist(), strict=True):
        for token in inputs[:-1]:
            place = targets.index(token) + 1 if token in SENTINELS else None
            span = itertools.takewhile(lambda token: token not in (*SENTINELS, END), targets[place:] if place else [])
            restored += span if place else [token]
    assert restored == TEXT.ids[: len(restored)].tolist()
    assert len(restored) == 70 * len(numbers)


def test_a_batch_does_not_depend_on_rows_of_other_processes():
    assert_independent(rows_of(jitter=True, mixture="r:1,s:1,x:1"))


def test_marks_around_texts():
    """As BART's tokenizer has them; the end of the text is short, and a single token makes no row."""
    template = SequenceTemplate([7], [END], START, PAD)
    text = TokenizedTexts(np.arange(10, 10 + 70), np.array([0, 70]))
    rows = DenoisingRows(text, Denoise().denoisers, template, SENTINELS, 64, 15)
    assert rows.width == 69
    batch = rows.batch(np.array([0, 1]), np.random.default_rng(0))
    assert batch["tokens"][0, [0, -1]].tolist() == [7, END]
    assert batch["target"][0, :2].tolist() == [START, 7]
    assert batch["valid"].sum(1).tolist() == [64, 0]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rate": 1.0}, "rate=1.0 must be more than 0 and less than 1"),
        ({"span": 0.5}, "span=0.5 must be at least 1 token"),
        ({"mixture": "r:1,t:1"}, "has 't', which is no denoiser"),
        ({"mixture": "r:1,r:2"}, "names r twice"),
        ({"mixture": "r"}, "must give r a weight, as r:1 does"),
        ({"mixture": "r:0"}, "gives no denoiser a weight"),
    ],
)
def test_bad_options(options, says):
    with pytest.raises(ValueError, match=says):
        Denoise(**options)


def test_weights_of_a_mixture():
    denoisers = Denoise(mixture="r:3,s:1").denoisers
    assert [(round(denoiser.share, 3), *denoiser[1:]) for denoiser in denoisers] == [
        (0.375, 0.15, 3),
        (0.375, 0.15, 8),
        (0.25, None, None),
    ]
