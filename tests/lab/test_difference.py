"""Where two runs part."""

from train.lab.difference import differing, parting


def test_values_that_differ_or_are_on_one_side_alone():
    before = {"model.width": 64, "seed": 0, "model.mixer.rank": 8}
    assert differing(before, {"model.width": 64, "seed": 1}) == {"seed": (0, 1), "model.mixer.rank": (8, None)}
    assert differing(before, before) == {}


def test_losses_part():
    first = {10: 5.0, 20: 4.0, 30: 3.0, 40: 2.0, 50: 1.0}
    second = {20: 4.0, 30: 3.001, 40: 2.5, 60: 1.0}
    result = parting(first, second, 0.01)
    assert result == (3, 20, (30, 3.0, 3.001), (40, 2.0, 2.5), (40, 2.0, 2.5))
    assert parting(first, second, 0.3).parts_at is None
    assert parting(first, first, 0.0)[:4] == (5, 50, None, None)
    assert parting(first, {}, 0.01) == (0, None, None, None, None)
    assert parting({1: 1.0}, {1: 2.0}, 0.01).equal_until is None
