"""Unions of options, and frozen dataclasses."""

import copy
import dataclasses
import pickle
from typing import Literal

import pytest

from tfm.config.model import Config
from tfm.config.positions import Learned
from tfm.options import choices


def window() -> type:
    """A class with three fields, of which one is no argument."""

    class Window:
        name: Literal["window"] = choices.tag("window")
        size: int = 3
        sides: tuple[int, ...] = ()

    return Window


Shared, Compiled = choices.frozen(window()), dataclasses.dataclass(frozen=True)(window())


@pytest.mark.parametrize("arguments", [{}, {"size": 5}, {"sides": (1, 2)}, {"size": 5, "sides": (1,)}])
def test_frozen_is_a_frozen_dataclass(arguments):
    shared, compiled = Shared(**arguments), Compiled(**arguments)
    assert repr(shared) == repr(compiled)
    assert hash(shared) == hash(compiled)
    assert dataclasses.asdict(shared) == dataclasses.asdict(compiled)
    assert shared == Shared(**arguments) == copy.deepcopy(shared) == dataclasses.replace(shared)
    assert shared != compiled
    assert shared != Shared(size=7)


@pytest.mark.parametrize("name", ["name", "size", "sides", "width"])
@pytest.mark.parametrize("cls", [Shared, Compiled])
def test_a_field_is_set_once(cls, name):
    options = cls()
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"^cannot assign to field '{name}'$"):
        setattr(options, name, 4)
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"^cannot delete field '{name}'$"):
        delattr(options, name)
    assert options == cls()


def test_a_config_is_pickled():
    config = Config(vocab=9)
    assert pickle.loads(pickle.dumps(config)) == config


def test_choices_of():
    assert choices.choices_of(Config, "remat") == ("none", "dots", "block", "offload")
    assert choices.choices_of(Config, "layers") == ()
    assert choices.alternatives(choices.type_hints(Config)["layers"]) == {}
    assert choices.alternatives(choices.type_hints(Config)["position"])["learned"] is Learned
