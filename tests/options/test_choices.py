"""Unions of options, and the sentences about wrong values."""

import pytest

from tfm.config.model import Config
from tfm.config.positions import Learned
from tfm.options import choices


@pytest.mark.parametrize(("total", "size", "nearest"), [(128, 5, 4), (12, 100, 12), (12, 7, 6), (9, 0, 1), (7, 2, 1)])
def test_nearest_divisor(total, size, nearest):
    assert choices.nearest_divisor(size, total) == nearest


def test_suggest():
    assert choices.suggest("widht", ["width", "ffn"]) == "; did you mean width?"
    assert choices.suggest("zzz", iter(["width", "ffn"])) == "; known are width, ffn"


def test_choices_of():
    assert choices.choices_of(Config, "remat") == ("none", "dots", "block", "offload")
    assert choices.choices_of(Config, "layers") == ()
    assert choices.alternatives(choices.type_hints(Config)["layers"]) == {}
    assert choices.alternatives(choices.type_hints(Config)["position"])["learned"] is Learned
