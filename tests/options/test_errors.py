"""What errors say of names and values."""

import pytest

from tfm.options import errors


@pytest.mark.parametrize(("total", "size", "nearest"), [(128, 5, 4), (12, 100, 12), (12, 7, 6), (9, 0, 1), (7, 2, 1)])
def test_nearest_divisor(total, size, nearest):
    assert errors.nearest_divisor(size, total) == nearest


def test_suggest():
    assert errors.suggest("widht", ["width", "ffn"]) == "; did you mean width?"
    assert errors.suggest("zzz", iter(["width", "ffn"])) == "; known are width, ffn"
    assert errors.suggest("v3", ["v1", "v2"]).startswith("; did you mean v")
    assert errors.suggest("rmsprop", ["adamw", "soap"]) == "; known are adamw, soap", "they share three letters alone"
