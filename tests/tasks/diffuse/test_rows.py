"""Rows of masked diffusion: which tokens are masked, what they count, and what the bound is, by enumeration."""

import itertools
import math

import numpy as np
import pytest

from train.data.tokens import TokenizedTexts
from train.tasks.diffuse.rows import SMALLEST_RATE, DiffusionRows, masks
from train.text.special import SpecialTokens

PAD, UNK, CLS, SEP, MASK = SPECIALS = SpecialTokens(0, 1, 2, 3, 4)


def rows_of(times="counts", length=8, tokens=100, **options):
    text = TokenizedTexts(np.arange(5, 5 + tokens, dtype=np.int32), np.array([0, tokens]))
    return DiffusionRows(text, length, times, SPECIALS, num_bytes=3 * tokens, **options)


def test_what_is_masked_is_what_counts():
    rows = rows_of()
    batch = rows.batch(np.array([0, 3, len(rows) - 1, -1]), np.random.default_rng(0))
    masked = batch["weights"] > 0
    np.testing.assert_array_equal(batch["tokens"][masked], MASK)
    np.testing.assert_array_equal(batch["tokens"][~masked], batch["targets"][~masked])
    np.testing.assert_array_equal(batch["targets"][0], np.arange(5, 13))
    assert not masked[batch["valid"] == 0].any()
    sizes, counts = batch["valid"].sum(1), masked.sum(1)
    assert counts[:3].min() >= 1
    np.testing.assert_allclose(batch["weights"].sum(1), sizes, rtol=1e-6, err_msg="they add up to the tokens")
    assert sizes[3] == 0
    assert batch["bytes"][0] == pytest.approx(3 * 8, rel=0.1)


def test_counts_of_a_batch_are_spread_evenly():
    """64 rows of 8 tokens: every count eight times, whatever the common start."""
    for seed in range(5):
        batch = rows_of(tokens=1000).batch(np.arange(64), np.random.default_rng(seed))
        np.testing.assert_array_equal(np.bincount((batch["weights"] > 0).sum(1), minlength=9)[1:], 8)


def test_every_place_is_masked_as_often():
    rng = np.random.default_rng(0)
    masked, _ = masks(rng.random(20_000), rng.random((20_000, 8)), np.full(20_000, 8), True)
    shares = masked.mean(0)
    assert np.abs(shares - 4.5 / 8).max() < 5 * (0.25 / 20_000) ** 0.5


def test_rates_of_random_times():
    rng = np.random.default_rng(0)
    times = rng.random(20_000)
    masked, weights = masks(times, rng.random((20_000, 8)), np.full(20_000, 8), False)
    np.testing.assert_allclose(weights, 1 / (SMALLEST_RATE + (1 - SMALLEST_RATE) * times))
    assert masked.mean() == pytest.approx(0.5, abs=0.01)
    rates = rows_of("random").batch(np.zeros(64, int), np.random.default_rng(0))["weights"].max(1)
    evenly = rows_of("spread").batch(np.zeros(64, int), np.random.default_rng(0))["weights"].max(1)
    present = np.sort(1 / evenly[evenly > 0])
    assert np.diff(present).max() < 3 / 64, "of 64 rows no two times in a row are far apart"
    assert np.diff(np.sort(1 / rates[rates > 0])).max() > 3 / 64


def test_draws_repeat_the_rows_with_other_masks():
    rows = rows_of(draws=3)
    count = len(rows) // 3
    assert len(rows) == 3 * count
    batch = rows.batch(np.array([0, count, 2 * count]), np.random.default_rng(0))
    assert (batch["targets"] == batch["targets"][0]).all()
    assert len({tuple(row) for row in batch["tokens"].tolist()}) == 3


def test_a_row_moves_in_training():
    batch = rows_of(tokens=1000, jitter=True).batch(np.zeros(50, int), np.random.default_rng(0))
    starts = batch["targets"][:, 0] - 5
    assert starts.min() >= 0
    assert len(set(starts.tolist())) > 3


def test_the_bound_is_the_mean_over_orders():
    """Of all texts of 4 tokens of 3 kinds, by a distribution of conditionals that depend on what is seen: the expected
    weighted sum over counts and masks equals the mean over all 24 orders, to 1e-6."""
    length, kinds = 4, 3
    rng = np.random.default_rng(0)
    contexts = itertools.product([None, 0, 1, 2], repeat=length)
    logits = {context: rng.normal(size=(length, kinds)) for context in contexts}

    def losses(context):
        values = logits[context]
        return np.log(np.exp(values).sum(1, keepdims=True)) - values

    for text in itertools.product(range(kinds), repeat=length):
        bound = 0.0
        for count in range(1, length + 1):
            times = np.array([(count - 0.5) / length])
            subsets = list(itertools.combinations(range(length), count))
            for hidden in subsets:
                order = np.array([[0.1 if place in hidden else 0.9 for place in range(length)]])
                masked, weights = masks(times, order, np.array([length]), True)
                assert tuple(np.flatnonzero(masked[0])) == hidden
                context = tuple(None if place in hidden else text[place] for place in range(length))
                of_tokens = losses(context)[np.arange(length), list(text)]
                bound += weights[0] * of_tokens[list(hidden)].sum() / len(subsets) / length
        by_orders = 0.0
        for order in itertools.permutations(range(length)):
            for step, place in enumerate(order):
                seen = order[:step]
                context = tuple(text[n] if n in seen else None for n in range(length))
                by_orders += losses(context)[place, text[place]] / math.factorial(length)
        assert bound == pytest.approx(by_orders, abs=1e-6)
