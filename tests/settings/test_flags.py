"""Flags: how they are read, corrected and explained."""

import dataclasses
from dataclasses import dataclass
from typing import Literal

import pytest

from tfm.options.choices import Options, tag
from tfm.options.dotted import flatten
from train import UserError
from train.settings import flags


@dataclass(frozen=True)
class Round(Options):
    """A disc.

    radius: of the rim
    """

    name: Literal["round"] = tag("round")
    radius: float = 1.5


@dataclass(frozen=True)
class Square(Options):
    """A square.

    side: of all four
    shade: light | dark: how it looks
    """

    name: Literal["square"] = tag("square")
    side: int | None = None
    shade: Literal["light", "dark"] = "light"


@dataclass(frozen=True)
class Part:
    """One of several.

    shape: its outline
    count: how many
    """

    shape: Round | Square | None = None
    count: int = 1


@dataclass(frozen=True)
class Inner:
    """Inside.

    size: how large
    on: whether at all
    """

    size: int = 4
    on: bool = True

    def __post_init__(self):
        if self.size < 1:
            raise ValueError(f"size={self.size} must be at least 1")


@dataclass(frozen=True)
class Outer:
    """Outside.

    name: what it is called
    rate: how fast: in steps
    limit: where it ends; none: nowhere
    fast_mode: whether to hurry
    shape: its outline
    parts: how many parts
    """

    name: str = "x"
    rate: float = 0.5
    limit: int | None = None
    fast_mode: bool = False
    shape: Round | Square = Round()
    parts: tuple[Part, ...] = (Part(),)
    inner: Inner = Inner()


ALIASES = {"size": "inner.size"}


def build(*argv, layers=()):
    return flags.build(Outer, *layers, flags.parse(argv, ALIASES), aliases=ALIASES)


@pytest.mark.parametrize(
    ("argv", "values"),
    [
        (["--inner.on=false"], {"inner.on": False}),
        (["--inner.on", "false"], {"inner.on": False}),
        (["--inner.on=True"], {"inner.on": True}),
        (["--fast-mode"], {"fast_mode": True}),
        (["--fast-mode", "--inner.size=2"], {"fast_mode": True, "inner.size": 2}),
        (["--fast_mode=true"], {"fast_mode": True}),
        (["--inner.size", "3", "--name", "a b"], {"inner.size": 3, "name": "a b"}),
        (["--inner.size=1_000"], {"inner.size": 1000}),
        (["--limit=-3"], {"limit": -3}),
        (["--limit", "-3"], {"limit": -3}),
        (["--limit=none"], {"limit": None}),
        (["--limit=5", "--limit=None"], {"limit": None}),
        (["--rate=1e-3"], {"rate": 1e-3}),
        (["--rate=2"], {"rate": 2.0}),
        (["--name="], {"name": ""}),
        (["--name=a=b"], {"name": "a=b"}),
        (["--name=none"], {"name": "none"}),
        (["--size=7"], {"inner.size": 7}),
        (["--inner.size=1", "--inner.size=2"], {"inner.size": 2}),
        (["--shape=square"], {"shape": "square", "shape.side": None, "shape.shade": "light"}),
        # options are read by the class that the name chooses, whatever the order
        (["--shape.side=3", "--shape=square"], {"shape": "square", "shape.side": 3}),
        (["--shape=square", "--shape.side=none"], {"shape.side": None}),
        (["--shape.radius=3"], {"shape.radius": 3.0}),
        # lists
        (["--parts=2", "--parts.1.count=3"], {"parts": 2, "parts.0.count": 1, "parts.1.count": 3}),
        (["--parts=2", "--parts.count=3"], {"parts.0.count": 3, "parts.1.count": 3}),
        (["--parts.0.shape.side=3", "--parts.0.shape=square"], {"parts.0.shape": "square", "parts.0.shape.side": 3}),
        (["--parts.0.shape=none"], {"parts.0.shape": None}),
        (["--parts.0.shape=model"], {"parts.0.shape": None}),
        (["--parts=0"], {"parts": 0}),
        ([], {}),
    ],
)
def test_values(argv, values):
    config = flatten(build(*argv))
    assert {name: config[name] for name in values} == values
    assert [type(config[name]) for name in values] == [type(value) for value in values.values()]
    untouched = {
        name for name in flatten(Outer()) if name.partition(".")[0] not in {n.partition(".")[0] for n in values}
    }
    assert {name: config[name] for name in untouched} == {name: flatten(Outer())[name] for name in untouched}


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--inner.size=abc"], "--inner.size=abc must be a whole number"),
        (["--inner.size=1.5"], "--inner.size=1.5 must be a whole number"),
        (["--limit=1.5"], "--limit=1.5 must be a whole number or none"),
        (["--inner.size=none"], "--inner.size=none must be a whole number"),
        (["--rate=fast"], "--rate=fast must be a number"),
        (["--rate=nan"], "--rate=nan must be a number"),
        (["--inner.on=maybe"], "--inner.on=maybe must be true or false"),
        (["--fast-mode", "perhaps"], "--fast-mode=perhaps must be true or false"),
        (["--inner.size"], "--inner.size needs a value: --inner.size=INT"),
        (["--inner.size", "--fast-mode"], "--inner.size needs a value: --inner.size=INT"),
        (["--shape"], "--shape needs a value: --shape=STR"),
        (["inner.size=3"], "'inner.size=3' is not a flag; write --name=value"),
        (["--inner.sise=3"], "unknown flag --inner.sise; did you mean inner.size?"),
        (["--iner.size=3"], "unknown flag --iner.size; did you mean inner.size?"),
        (["--fast-mod"], "unknown flag --fast-mod; did you mean fast-mode?"),
        (["--siz=3"], "unknown flag --siz; did you mean size?"),
        (["--zzz=1"], "unknown flag --zzz; --help lists all flags"),
        (["--out=gs://a/b"], "--out=gs://a/b is a URL, and this writes files; name a path, and copy it then"),
        # unions and lists
        (["--shape=sqare"], "--shape=sqare is unknown; did you mean square?"),
        (["--shape=none"], "--shape=none is unknown; known are round, square"),
        (["--shape.raduis=3"], "unknown flag --shape.raduis; did you mean shape.radius?"),
        (["--shape.side=3"], "--shape.side belongs to shape=square, not to round; leave it out"),
        (["--shape=square", "--shape.side=x"], "--shape.side=x must be a whole number or none"),
        (["--parts.1.count=3"], "unknown flag --parts.1.count; did you mean parts.0.count?"),
        (["--parts=two"], "--parts=two must be a whole number"),
        (["--parts.0.shape.side=3"], "--parts.0.shape.side belongs to parts.0.shape=square, not to none; leave it out"),
        # what a class refuses
        (["--inner.size=0"], "--inner.size=0 must be at least 1"),
        (["--size=0"], "--inner.size=0 must be at least 1"),
    ],
)
def test_wrong_flags(argv, sentence):
    with pytest.raises(UserError) as error:
        build(*argv)
    assert str(error.value) == sentence


def test_layers():
    """Texts over values, and the options of a replaced class do not linger."""
    preset = {"shape": "square", "shape.side": 4, "inner.size": 9}
    assert build(layers=[preset]).shape == Square(side=4)
    assert build("--shape=round", layers=[preset]).shape == Round()
    assert build("--shape.shade=dark", layers=[preset]).shape == Square(side=4, shade="dark")
    assert build("--shape=square", layers=[preset, {"shape": "round"}]).shape == Square()
    assert build("--size=2", layers=[preset]).inner == Inner(size=2)


def test_what_is_shown_can_be_read():
    outer = Outer("y", 2.0, 7, True, Square(side=None), (Part(Square(side=2)), Part()), Inner(9, False))
    argv = [f"--{flag.name.replace('_', '-')}={flags.show(flag.value)}" for flag in flags.flags_of(outer)]
    assert build(*argv) == outer
    assert flags.build(Outer, flatten(outer)) == outer
    assert flags.build(Outer, {"inner.on": False}) == Outer(inner=Inner(on=False)), "the rest are defaults"


def test_the_flags_of_a_configuration():
    """In the order of the fields; only those of the chosen classes."""
    outer = Outer(parts=(Part(Square()),))
    names = [flag.name for flag in flags.flags_of(outer)]
    assert names == list(flatten(outer))
    helps = {flag.name: flag.help for flag in flags.flags_of(outer)}
    assert helps["rate"] == "how fast: in steps"
    assert helps["shape"] == "round | square: its outline"
    assert helps["parts"] == "how many parts"
    assert helps["parts.0.shape.shade"] == "light | dark: how it looks"
    variants = {flag.name: flag.variants for flag in flags.flags_of(outer)}
    assert variants["shape"] == {"round": "A disc.", "square": "A square."}


def test_format_help():
    explained = flags.flags_of(Outer().inner, "inner.")
    text = flags.format_help("usage: x", explained, ALIASES, [flags.Flag("limit", None, None, "where it ends")])
    assert text.splitlines() == [
        "usage: x",
        "",
        f"  {'--size=4':<36} how large",
        f"  {'--inner.on=true':<36} whether at all",
        "  --limit=none",
    ]


@dataclass(frozen=True)
class Needs:
    """A command that cannot do without.

    run: the folder
    top_k: how many
    """

    run: str = ""
    top_k: int = 3

    def __post_init__(self):
        if not self.run:
            raise ValueError("run=DIR must name a folder")


def test_options_of_a_command(capsys):
    assert flags.options(Needs, "usage", ["--run=a", "--top-k=4"]) == Needs("a", 4)
    assert flags.explicit_options(Needs("a", 4), ["--top-k=4"]) == {"top_k": 4}
    with pytest.raises(UserError, match="^--run=DIR must name a folder$"):
        flags.options(Needs, "usage", [])
    assert flags.options(Needs, "usage", ["--help"]) is None
    assert capsys.readouterr().out.splitlines()[-1].split() == ["--top-k=3", "how", "many"]


def test_split_argv():
    argv = ["--run=a", "--x.y=3", "--top-k", "4", "--z", "--seed=1"]
    names = [field.name for field in dataclasses.fields(Needs)]
    assert flags.split_argv(argv, names) == (["--run=a", "--top-k", "4"], ["--x.y=3", "--z", "--seed=1"])
