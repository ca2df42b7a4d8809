"""Rows: every token stands in exactly one place, beside its own document."""

import numpy as np
import pytest

from train.data import packing
from train.data.tokens import TokenizedTexts
from train.text.special import SpecialTokens

PAD, UNK, CLS, SEP, MASK = SPECIALS = SpecialTokens(1_000_000, 1_000_001, 1_000_002, 1_000_003, 1_000_004)


def documents(lengths):
    """Tokens 0, 1, 2, ... through all documents, so that a token's number is its place in the text."""
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return TokenizedTexts(np.arange(starts[-1], dtype=np.uint32), starts)


def some_lengths(seed=0, texts=200, max_length=90):
    return np.random.default_rng(seed).integers(0, max_length, texts)


CASES = {
    "many": (some_lengths(), 32),
    "short": (some_lengths(1, max_length=6), 32),
    "one": ([1000], 16),
    "exact": ([30, 60, 30], 32),
    "one over": ([31, 61], 32),
    "single tokens": ([1] * 50, 8),
    "none": ([0, 0, 5, 0], 8),
}


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_every_token_is_in_exactly_one_place(name, pack):
    lengths, length = CASES[name]
    tokens = documents(lengths)
    plan = packing.plan(tokens, length, pack)
    batch = packing.fill(tokens, plan, np.arange(plan.rows), SPECIALS)
    assert all(field.shape == (plan.rows, length) and field.dtype == np.int32 for field in batch.values())

    regular = batch["tokens"] < PAD
    np.testing.assert_array_equal(np.sort(batch["tokens"][regular]), tokens.ids)
    np.testing.assert_array_equal(batch["tokens"] == PAD, batch["segments"] == 0)
    assert plan.padding == pytest.approx((batch["segments"] == 0).mean(), abs=1e-12)

    document = np.repeat(np.arange(len(lengths)), lengths)
    for row in range(plan.rows):
        pieces = batch["segments"][row].max()
        assert pieces == 1 or pack
        used = (batch["segments"][row] > 0).sum()
        np.testing.assert_array_equal(
            np.sort(batch["segments"][row, :used]), batch["segments"][row, :used]
        )  # padding comes last
        for piece in range(1, pieces + 1):
            (places,) = np.nonzero(batch["segments"][row] == piece)
            np.testing.assert_array_equal(batch["positions"][row, places], np.arange(len(places)))
            first, *inside, last = batch["tokens"][row, places]
            assert (first, last) == (CLS, SEP)
            np.testing.assert_array_equal(
                inside, np.arange(inside[0], inside[0] + len(inside))
            )  # in the order of the text
            assert document[inside[0]] == document[inside[-1]]


@pytest.mark.parametrize("name", CASES)
def test_packing_never_needs_more_rows_than_padding(name):
    lengths, length = CASES[name]
    packed, padded = (packing.plan(documents(lengths), length, pack) for pack in (True, False))
    assert packed.rows <= padded.rows == sum(-(-n // (length - 2)) for n in lengths)
    assert packed.padding <= padded.padding
    assert sorted(zip(packed.starts, packed.sizes, strict=True)) == sorted(
        zip(padded.starts, padded.sizes, strict=True)
    )


def test_a_small_plan_by_hand():
    """Pieces of 7, 5, 4, 3, 1 tokens take 9, 7, 6, 5, 3 of 10 places: 9 | 7 + 3 | 6 | 5, as 6 + 5 does not fit."""
    tokens = documents([4, 7, 1, 5, 3])
    plan = packing.plan(tokens, 10, pack=True)
    batch = packing.fill(tokens, plan, np.arange(plan.rows), SPECIALS)
    rows = {tuple(row[row < PAD].tolist()) for row in batch["tokens"]}
    assert rows == {(4, 5, 6, 7, 8, 9, 10), (11, 12, 13, 14, 15, 16), (0, 1, 2, 3), (17, 18, 19)}
    assert plan.padding == pytest.approx(1 - 30 / 40)


def test_rows_can_be_built_alone_and_in_any_order():
    tokens = documents(some_lengths())
    plan = packing.plan(tokens, 32, pack=True)
    all_rows = packing.fill(tokens, plan, np.arange(plan.rows), SPECIALS)
    chosen = np.array([7, 3, 3, plan.rows - 1])
    for name, field in packing.fill(tokens, plan, chosen, SPECIALS).items():
        np.testing.assert_array_equal(field, all_rows[name][chosen])


@pytest.mark.parametrize("seed", range(3))
def test_efficiency(seed):
    """Documents of random length leave less than 5 % of the places empty."""
    lengths = np.random.default_rng(seed).geometric(1 / 60, 3000)
    assert packing.plan(documents(lengths), 128, pack=True).padding < 0.05
    assert packing.plan(documents(lengths), 128, pack=False).padding > 0.3


def test_no_text_at_all():
    for pack in (True, False):
        plan = packing.plan(documents([0]), 16, pack)
        assert (plan.rows, plan.padding) == (0, 0.0)
