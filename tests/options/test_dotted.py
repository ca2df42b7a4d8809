"""Dotted names and values of nested dataclasses: there and back, layers over layers, and what is refused."""

import dataclasses
import json
import re
from dataclasses import dataclass
from typing import Literal

import pytest
from variants import VARIANTS

import tfm
from tfm.catalogue.options.patterns import Sliding
from tfm.catalogue.options.positions.absolute import NoPosition
from tfm.catalogue.options.positions.relative import Disentangled
from tfm.config.mixers import Softmax
from tfm.config.model import Config, Layer
from tfm.config.patterns import Full
from tfm.config.positions import Rotary
from tfm.options.choices import Options, tag
from tfm.options.dotted import flatten, flatten_saved, override

MODERNBERT = Config(
    layers=6,
    position=Rotary(base=160_000.0),
    mixer=Softmax(pattern=Full()),
    prefix=(Layer(position=NoPosition()),),
    period=(Layer(), *[Layer(mixer=Softmax(pattern=Sliding(window=64)), position=Rotary())] * 2),
)


@pytest.mark.parametrize("base", [Config(), MODERNBERT], ids=["default", "modernbert"])
@pytest.mark.parametrize("name", VARIANTS)
def test_there_and_back(name, base):
    """From any other configuration, and by way of JSON."""
    config = VARIANTS[name].config
    assert override(base, flatten(config)) == config
    assert override(base, flatten_saved(json.loads(json.dumps(dataclasses.asdict(config))))) == config
    assert hash(override(base, flatten(config))) == hash(config)


def test_the_dotted_names_of_a_model():
    values = flatten(MODERNBERT, "model.")
    assert {key: value for key, value in values.items() if key.startswith(("model.p", "model.mixer"))} == {
        "model.position": "rotary",
        "model.position.base": 160_000.0,
        "model.position.pairs": "halves",
        "model.position.axes": 1,
        "model.position.coordinates": "places",
        "model.position.fraction": 1.0,
        "model.position.scaling": None,
        "model.mixer": "softmax",
        "model.mixer.pattern": "full",
        "model.mixer.qk_norm": False,
        "model.mixer.qkv_bias": True,
        "model.mixer.key_bias": True,
        "model.mixer.output_bias": True,
        "model.mixer.own_qkv_bias": False,
        "model.mixer.score": "scaled_dot",
        "model.mixer.split_states": False,
        "model.prefix": 1,
        "model.prefix.0.mixer": None,
        "model.prefix.0.position": "none",
        "model.prefix.0.residual": None,
        "model.prefix.0.feed_forward": None,
        "model.period": 3,
        "model.period.0.mixer": None,
        "model.period.0.position": None,
        "model.period.0.residual": None,
        "model.period.0.feed_forward": None,
        **{
            f"model.period.{index}.{name}": value
            for index in (1, 2)
            for name, value in {
                "mixer": "softmax",
                "mixer.pattern": "sliding",
                "mixer.pattern.window": 64,
                "mixer.pattern.dilation": 1,
                "mixer.pattern.dilated_heads": None,
                "mixer.qk_norm": False,
                "mixer.qkv_bias": True,
                "mixer.key_bias": True,
                "mixer.output_bias": True,
                "mixer.own_qkv_bias": False,
                "mixer.score": "scaled_dot",
                "mixer.split_states": False,
                "feed_forward": None,
                "position": "rotary",
                "position.base": 10_000.0,
                "position.pairs": "halves",
                "position.axes": 1,
                "position.coordinates": "places",
                "position.fraction": 1.0,
                "position.scaling": None,
                "residual": None,
            }.items()
        },
        "model.pad_vocab_to": 128,
        "model.param_dtype": "float32",
    }


def test_a_class_is_chosen_by_its_tag_and_starts_from_its_defaults():
    config = override(Config(), {"position": "rotary", "position.base": 500_000})
    assert config.position == Rotary(base=500_000.0)
    assert type(config.position.base) is float
    assert override(config, {"position": "rotary"}) == config, "the same class keeps its options"
    assert override(config, {"position": "none"}).position == NoPosition()
    assert override(config, {"position": "learned"}, {"position": "rotary"}).position == Rotary()


def test_options_of_a_replaced_class_do_not_linger():
    first = {"position": "disentangled", "position.buckets": 8, "position.max_distance": 9}
    assert override(Config(), first, {"position": "t5"}).position.buckets == 32
    assert override(Config(), first, {"position.buckets": 6}).position == Disentangled(buckets=6, max_distance=9)


def test_the_result_of_all_layers_is_judged():
    """A layer may leave what only the next one makes whole."""
    assert override(Config(), {"heads": 3}, {"width": 96}).sizes["H"] == 32
    with pytest.raises(ValueError, match="heads=3 must divide width=128; try heads=2"):
        override(Config(), {"heads": 3}, {"ffn": 96})


def test_one_kind_of_a_period_and_all_kinds():
    sliding = {"mixer": "softmax", "mixer.pattern": "sliding", "mixer.pattern.window": 8}
    second = override(Config(), {"period": 2}, {f"period.1.{name}": value for name, value in sliding.items()})
    assert second.period == (Layer(), Layer(mixer=Softmax(pattern=Sliding(window=8))))
    every = override(Config(), {"period": 2} | {f"period.{name}": value for name, value in sliding.items()})
    assert every.period == (Layer(mixer=Softmax(pattern=Sliding(window=8))),) * 2
    both = override(every, {"period.mixer.pattern.window": 6, "period.1.mixer.pattern.window": 4})
    assert [kind.mixer.pattern.window for kind in both.period] == [6, 4], "the narrower name wins"
    assert [kind.mixer.pattern.window for kind in override(both, {"period.mixer.pattern.window": 5}).period] == [5, 5]
    assert override(both, {"period.0.mixer": None}).period[0] == Layer()
    assert override(both, {"period": 1}).period == both.period[:1]
    assert override(both, {"period": 3}).period == (*both.period, Layer())


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        # names
        ({"positoin": "rotary"}, "positoin is unknown; did you mean position?"),
        ({"mixer.patern": "sliding"}, "mixer.patern is unknown; did you mean mixer.pattern?"),
        ({"period.3.mixer": "softmax"}, "period.3.mixer is unknown; did you mean period.0.mixer?"),
        ({"zzzzz": 1}, "zzzzz is unknown; known are layers, share_layers, width, heads"),
        ({"position": "rotery"}, "position=rotery is unknown; did you mean rotary?"),
        ({"period.0.mixer": "qqq"}, "period.0.mixer=qqq is unknown; known are softmax"),
        ({"position": 5}, "position=5 must be text"),
        # options
        ({"position.base": 5.0}, "position.base belongs to position=rotary, not to learned; leave it out"),
        ({"position.buckets": 8}, "position.buckets belongs to position=t5 or disentangled or tupe, not to learned"),
        ({"mixer.pattern.dilation": 8}, "mixer.pattern.dilation belongs to mixer.pattern=sliding, not to full"),
        ({"period.0.mixer.qk_norm": True}, "period.0.mixer.qk_norm belongs to period.0.mixer=softmax, not to none"),
        ({"period.mixer.qk_norm": True}, "period.mixer.qk_norm belongs to period.mixer=softmax, not to none"),
        # values
        ({"layers": "two"}, "layers='two' must be a whole number"),
        ({"layers": True}, "layers=True must be a whole number"),
        ({"layers": None}, "layers=None must be a whole number"),
        ({"kv_heads": 1.5}, "kv_heads=1.5 must be a whole number or none"),
        ({"bias": 1}, "bias=1 must be true or false"),
        ({"norm_eps": "small"}, "norm_eps='small' must be a number"),
        ({"norm": 3}, "norm=3 must be text"),
        ({"period": 0}, "period=0 must be at least 1"),
        ({"period": -1}, "period=-1 must be at least 0"),
        # each class judges itself, and its name stands before the sentence
        ({"position": "rotary", "position.base": 1}, "position.base=1.0 must be more than 1; 10,000 is usual"),
        ({"head.pool": "sum"}, "head.pool=sum is unknown; known are first, mean, last, max"),
        (
            {"period": 2, "period.1.mixer": "softmax", "period.1.mixer.pattern": "sliding"}
            | {"period.1.mixer.pattern.window": 0},
            "period.1.mixer.pattern.window=0 must be at least 1",
        ),
    ],
)
def test_what_is_refused(values, sentence):
    with pytest.raises(ValueError, match="^" + re.escape(sentence)):
        override(Config(), values)


@dataclass(frozen=True)
class Tall(Options):
    """High.

    height: in metres
    """

    name: Literal["tall"] = tag("tall")
    height: float = 2.0


@dataclass(frozen=True)
class Named:
    """Its name is a field like any other.

    name: what it is called
    """

    name: str = "x"


@dataclass(frozen=True)
class Both:
    """A union of one class, and a dataclass."""

    shape: Tall = Tall()
    called: Named = Named()


def test_a_name_is_a_tag_where_it_belongs_to_options():
    assert flatten(Both()) == {"shape": "tall", "shape.height": 2.0, "called.name": "x"}
    values = flatten_saved(dataclasses.asdict(Both(called=Named("y"))))
    assert values == {"shape.name": "tall", "shape.height": 2.0, "called.name": "y"}
    assert override(Both(), values) == Both(called=Named("y"))


def test_a_tag_cannot_be_changed():
    with pytest.raises(TypeError):
        Rotary(name="learned")
    with pytest.raises(ValueError, match="^position=rotery is unknown"):
        override(Config(), {"position.name": "rotery"})


def test_the_walk_is_public():
    assert tfm.override is override
    assert tfm.flatten is flatten
