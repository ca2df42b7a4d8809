"""Mixtures: exact counts at any row, without drift, and what a run keeps of them."""

import json

import numpy as np
import pytest

from train import UserError
from train.data import feed, mixture
from train.data.mixture import Phase
from train.data.permutation import permute_blocks
from train.settings.schema import Data

SIZES = {"web": 1000, "books": 300, "code": 50}
NAMES = list(SIZES)


def shares(**options):
    rows = options.pop("rows", 500)
    return [(first, dict(share)) for first, share in mixture.resolve(Data(**options), SIZES, rows)]


def test_counts_are_exact_after_any_row():
    """Up to a few rows of a hundred sources, and of 10^11 rows as of the first."""
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(100, 0.3)) + 1e-9
    phases = [Phase(0, mixture._rounded(dict(enumerate(weights))))]  # type: ignore[arg-type]
    total = sum(phases[0].shares.values())
    assert total == 1 << 24
    for first in (0, 12_345, 10**11):
        rows = np.arange(first, first + 3000)
        counts = mixture.counts_before(rows, phases, [*phases[0].shares])
        np.testing.assert_array_equal(counts.sum(0), rows)
        assert (np.diff(counts, axis=1) >= 0).all()
        exact = np.array([[int(row) * share for row in rows] for share in phases[0].shares.values()], object)
        assert max(abs(int(c) * total - e) for c, e in zip(counts.ravel(), exact.ravel(), strict=True)) < 6 * total


def test_sizes_give_every_row_once():
    assert shares() == [(0, SIZES)]
    rows_of = feed.mixed_rows(SIZES, [Phase(0, SIZES)], 0, 1350, "full")
    for n in (0, 1, 5):
        sources, rows = rows_of(n)
        for index, size in enumerate(SIZES.values()):
            np.testing.assert_array_equal(np.sort(rows[sources == index]), np.arange(size))


@pytest.mark.parametrize("shuffle", ["full", "blocks"])
def test_a_batch_needs_no_other(shuffle):
    """Batches of another size have the same rows in the same order, across phases too."""
    phases = [Phase(0, {"web": 7, "books": 3}), Phase(101, {"web": 1, "code": 1})]
    large = feed.mixed_rows(SIZES, phases, 3, 4000, shuffle)(0)
    small = feed.mixed_rows(SIZES, phases, 3, 8, shuffle)
    for n in (0, 12, 13, 499):
        for whole_part, part in zip(large, small(n), strict=True):
            np.testing.assert_array_equal(whole_part[8 * n : 8 * n + 8], part)
    first, second = large[0][:101], large[0][101:]
    assert np.bincount(first, minlength=3).tolist() == [70, 31, 0]
    assert np.bincount(second, minlength=3).tolist() == [1949, 0, 1950]
    code = large[1][large[0] == 2][:50]
    np.testing.assert_array_equal(np.sort(code), np.arange(50)), "an epoch has every row"


@pytest.mark.parametrize(("size", "block", "window"), [(1000, 16, 4), (1024, 16, 64), (7, 16, 2), (4099, 8, 3)])
def test_blocks(size, block, window):
    """A permutation; the rows of a window are of few blocks."""
    order = permute_blocks(np.arange(size), size, (1, 2), block, window)
    np.testing.assert_array_equal(np.sort(order), np.arange(size))
    span = block * window
    for first in range(0, size - size % block, span):
        part = order[first : first + span]
        assert len(np.unique(part // block)) <= window + 1
        if size > 4 * span:
            assert (np.diff(part) == 1).mean() < 0.3
    np.testing.assert_array_equal(permute_blocks(np.array([5, 3]), size, (1, 2), block, window), order[[5, 3]])


def test_weights():
    (phase,) = shares(mixture="web:0.7,books:0.3")
    assert phase == (0, {"web": 11_744_051, "books": 5_033_165})
    (phase,) = shares(temperature=2.0)
    assert phase[1]["web"] / phase[1]["code"] == pytest.approx((1000 / 50) ** 0.5, rel=1e-6)
    assert shares(mixture="web:1,code:1e-30")[0][1]["code"] == 1


def test_unimax():
    """Chung et al. 2023: a small source is read as often as may be, and the rest is divided equally."""
    (phase,) = shares(mixture="unimax", max_epochs=2.0, rows=900)
    total = sum(phase[1].values())
    assert [round(phase[1][name] / total * 900) for name in NAMES] == [400, 400, 100]
    with pytest.raises(UserError, match=r"unimax: 3,000 rows read all sources more often than --data.max-epochs=2"):
        shares(mixture="unimax", max_epochs=2.0, rows=3000)


def test_phases(tmp_path):
    path = tmp_path / "phases.json"
    path.write_text(json.dumps([{"row": 0, "weights": {"web": 1}}, {"row": 90, "weights": {"web": 1, "code": 3}}]))
    assert [first for first, _ in shares(mixture=str(path))] == [0, 90]
    for text in ("{", "[]", '[{"row": 1, "weights": {"web": 1}}]', '[{"weights": {"web": 1}}]'):
        path.write_text(text)
        with pytest.raises(UserError, match=r"phases\.json"):
            shares(mixture=str(path))


WRONG = {
    "web:0,books:0": "weights must be numbers from 0 on, and not all 0",
    "web:-1,books:2": "weights must be numbers from 0 on",
    "web:nan,books:2": "weights must be numbers from 0 on",
    "web:inf,books:2": "weights must be numbers from 0 on",
    "web:1,news:1": "names news, and the sources are web, books, code",
    "web=1": "must be size, unimax, NAME:WEIGHT,NAME:WEIGHT, or a .json file of phases",
    "no.json": "does not exist; name a file of phases",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_mixtures(text):
    with pytest.raises(UserError) as error:
        shares(mixture=text)
    assert WRONG[text] in str(error.value)


def test_epochs_are_capped():
    with pytest.raises(UserError, match=r"reads code 5.00 times, and --data.max-epochs=4; give it less weight"):
        shares(mixture="web:1,code:1", max_epochs=4.0)
    assert shares(mixture="web:9,code:1", max_epochs=4.0)
