"""The exponent of a growth, and its picture."""

import pytest

from train.lab.timing import scaling


@pytest.mark.parametrize("power", [0.0, 1.0, 1.7, 2.0])
def test_the_exponent_of_a_power_is_its_own(power):
    assert scaling.exponent([(length, 3.0 * length**power) for length in (512, 1024, 4096)]) == pytest.approx(power)


def test_the_exponent_of_noise_is_that_of_least_squares():
    """Slopes of 1 and of 3 between neighbours whose lengths double: the line through all has the mean slope."""
    assert scaling.exponent([(1, 1), (2, 2), (4, 16)]) == pytest.approx(2)


def test_too_few_points_have_none():
    assert scaling.exponent([(512, 2.0)]) is None
    assert scaling.exponent([(512, 2.0), (1024, 0.0)]) is None


def test_lengths_are_ranked():
    assert scaling.parse_lengths("1024,512,512") == [512, 1024]


def test_the_picture_leaves_out_what_ran_out_of_memory(tmp_path):
    lines = [
        {"mixer": "softmax", "length": 512, "ms_median": 10.0, "peak_bytes": 10**6},
        {"mixer": "softmax", "length": 1024, "ms_median": 35.0, "peak_bytes": 4 * 10**6},
        {"mixer": "softmax", "length": 2048, "error": "out of memory"},
        {"mixer": "softmax", "lengths": [512, 1024], "exponent_time": 1.807, "exponent_peak_bytes": 2.0},
        {"mixer": "broken", "lengths": [], "exponent_time": None, "exponent_peak_bytes": None},
    ]
    scaling.draw(lines, tmp_path / "lengths.png")
    assert (tmp_path / "lengths.png").stat().st_size > 5000
