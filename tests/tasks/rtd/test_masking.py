"""Which tokens a generator predicts: by a loop of numpy, and by statistics."""

import numpy as np
import pytest

from train.tasks.rtd.masking import ReplacementMasker
from train.text.special import SpecialTokens

PAD, UNK, CLS, SEP, MASK = SPECIALS = SpecialTokens(0, 1, 2, 3, 4)
VOCAB = 50


def rows(count=4000, length=64, seed=0):
    """Two pieces a row, with padding behind and an unknown token in the first."""
    rng = np.random.default_rng(seed)
    tokens = rng.integers(5, VOCAB, (count, length)).astype(np.int32)
    tokens[:, 0], tokens[:, 20], tokens[:, 21], tokens[:, -9], tokens[:, -8:] = CLS, SEP, CLS, SEP, PAD
    tokens[:, 5] = UNK
    segments = np.tile(np.repeat([1, 2, 0], [21, length - 29, 8]), (count, 1)).astype(np.int32)
    return {"tokens": tokens, "segments": segments}


def masked(windows, rate=0.15, **sizes):
    fields = rows(**sizes)
    return fields["tokens"], ReplacementMasker(rate, windows, SPECIALS)(np.random.default_rng(1), fields)


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_what_is_predicted_stands_where_it_says(windows, rate):
    tokens, fields = masked(windows, rate)
    used, where, slots = fields["weights"] > 0, fields["where"], fields["slots"]
    count = round(rate * 56)
    assert fields["weights"].sum(1).min() == fields["weights"].sum(1).max() == min(count, 52 if not windows else count)
    np.testing.assert_array_equal(fields["targets"][used], np.take_along_axis(tokens, where, 1)[used])
    allowed = ~np.isin(tokens[0], [CLS, SEP, PAD, *([UNK] if windows else [])])
    assert allowed[where[used]].all()
    for row in range(50):
        expected = np.full(64, -1)
        for slot in reversed(np.flatnonzero(used[row])):
            expected[where[row, slot]] = slot
        np.testing.assert_array_equal(slots[row], expected)
    kept = slots < 0
    np.testing.assert_array_equal(fields["tokens"][kept], tokens[kept])
    assert np.isin(fields["tokens"][~kept], [MASK]).mean() > 0.8


def test_places_of_electra_are_drawn_with_replacement():
    """All places equally often; a draw is masked with 0.85, and a place that is drawn n times with 1 - 0.15^n."""
    tokens, fields = masked(windows=False)
    used, where, slots = fields["weights"] > 0, fields["where"], fields["slots"]
    candidates = np.flatnonzero(~np.isin(tokens[0], [CLS, SEP, PAD]))
    size, draws = len(candidates), int(used[0].sum())
    counts = np.bincount(where[used], minlength=64)[candidates]
    share = 1 / size
    assert np.abs(counts - share * used.sum()).max() < 5 * (used.sum() * share * (1 - share)) ** 0.5
    distinct = (slots >= 0).sum(1).mean()
    assert distinct == pytest.approx(size * (1 - (1 - share) ** draws), rel=0.01)
    masked_places, expected = (fields["tokens"] == MASK).sum(1).mean(), size * (1 - (1 - 0.85 * share) ** draws)
    assert masked_places == pytest.approx(expected, rel=0.01)
    changed = (fields["tokens"] != tokens) & (fields["tokens"] != MASK)
    assert not changed.any(), "no random tokens"


def test_a_window_has_a_mask():
    """Of every six tokens in a row, the first windows first, until as many are masked as the rate asks for."""
    tokens, fields = masked(windows=True)
    places = np.flatnonzero(tokens[0] > MASK)
    rank = {int(place): n for n, place in enumerate(places)}
    count = round(0.15 * 56)
    offsets = []
    for row in range(4000):
        ranks = [rank[int(place)] for place in fields["where"][row, :count]]
        assert [n // 6 for n in ranks] == list(range(count))
        offsets += [n % 6 for n in ranks]
        assert (fields["tokens"][row] == MASK).sum() == count, "all of them"
    counts = np.bincount(offsets)
    assert np.abs(counts - len(offsets) / 6).max() < 5 * (len(offsets) * 5 / 36) ** 0.5


@pytest.mark.parametrize("windows", [False, True])
def test_rows_with_little_to_hide(windows):
    tokens = np.array([[CLS, 7, SEP, PAD, PAD, PAD, PAD, PAD], [CLS, SEP, PAD, PAD, PAD, PAD, PAD, PAD]], np.int32)
    fields = {"tokens": tokens, "segments": (tokens != PAD).astype(np.int32)}
    fields = ReplacementMasker(0.15, windows, SPECIALS)(np.random.default_rng(0), fields)
    np.testing.assert_array_equal(fields["weights"], [[1, 0], [0, 0]])
    assert (fields["where"][0, 0], fields["targets"][0, 0]) == (1, 7)
    np.testing.assert_array_equal(fields["tokens"][1], tokens[1])
    assert (fields["slots"][1] == -1).all()
