"""What the core asks of variants: a hook that one variant uses is that variant's own affair, and slows reading of all.

A variant that needs what no other does wraps a function, or brings its own, instead of a hook in every layer of every
model.
"""

import dataclasses
import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

from tfm.attention.bias import ScoreBias
from tfm.interfaces import AttentionContext, FeedForwardLayer, Input, Mixer, Position, Residual
from tfm.options.choices import Options
from tfm.patterns import Pattern
from tfm.tables.feed_forwards import FEED_FORWARDS
from tfm.tables.inputs import INPUTS
from tfm.tables.mixers import MIXERS
from tfm.tables.patterns import PATTERNS
from tfm.tables.positions import POSITIONS
from tfm.tables.residuals import RESIDUALS

ROOT = Path(__file__).parent.parent
TABLES = {
    Mixer: MIXERS,
    Position: POSITIONS,
    Residual: RESIDUALS,
    FeedForwardLayer: FEED_FORWARDS,
    Input: INPUTS,
    Pattern: PATTERNS,
}

# Fields of the context that who makes one does not name.
POSITIONAL = {"positions", "slots"}

# Hooks that have a single user: none is added, and what is not true any more leaves this list.
SINGLE: dict[str, set[str]] = {
    "Mixer": set(),
    "Position": set(),
    "Residual": set(),
    "FeedForwardLayer": set(),
    "Input": set(),
    "Pattern": set(),
    "ScoreBias": set(),
    "AttentionContext": set(),
    "Options": set(),
}


@pytest.mark.parametrize("record", TABLES, ids=lambda record: record.__name__)
def test_hooks_of_slots(record):
    """Two variants or more have another value than the default."""
    users = {
        field: sum(getattr(variant, field) is not default for variant in TABLES[record].values())
        for field, default in record._field_defaults.items()
    }
    assert {field for field, count in users.items() if count < 2} == SINGLE[record.__name__]


def members(cls: type) -> set[str]:
    """What a class declares for the classes below it: methods, properties and values."""
    return {name for name in {*vars(cls), *cls.__annotations__} if not name.startswith("__")}


def below(cls: type) -> set[type]:
    """All classes below a class."""
    return {descendant for child in cls.__subclasses__() for descendant in (child, *below(child))}


def overrides(cls: type) -> Counter[str]:
    """How many classes below `cls` have a member of their own, by its name."""
    return Counter(name for child in below(cls) for name in {*vars(child), *child.__annotations__} & members(cls))


def test_hooks_of_biases():
    importlib.import_module("tfm.catalogue.models.segments")  # no table leads to the bias in it
    assert {name for name, count in overrides(ScoreBias).items() if count < 2} == SINGLE["ScoreBias"]


def texts(*besides: str) -> dict[str, str]:
    """The files of tfm, by the names of their modules, but for those in some of its folders."""
    paths = (path.relative_to(ROOT) for path in ROOT.glob("tfm/**/*.py"))
    return {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__"): (ROOT / path).read_text()
        for path in paths
        if path.parts[1] not in besides
    }


def modules_with(pattern: str, texts: dict[str, str]) -> set[str]:
    """The modules in which a pattern occurs."""
    return {module for module, text in texts.items() if re.search(pattern, text)}


def test_hooks_of_options():
    """Two classes of options or more have their own, and the core asks for it."""
    counts, core = overrides(Options), texts("catalogue", "compat")
    single = {name for name in members(Options) if counts[name] < 2}
    for name in members(Options):
        owners = {child.__module__ for child in below(Options) if name in {*vars(child), *child.__annotations__}}
        if not modules_with(rf"\.{name}\b", core) - owners:
            single.add(name)
    assert single == SINGLE["Options"]


def test_fields_of_the_context():
    """The core sets them, and two files read them: what only a variant knows, it keeps in a class of its own."""
    owner, core, library = {AttentionContext.__module__}, texts("catalogue", "compat"), texts("compat")
    names = [field.name for field in dataclasses.fields(AttentionContext)]
    setters = {name: modules_with(rf"\b{name}=", core) - owner for name in names}
    readers = {name: modules_with(rf"\.{name}\b", library) - owner for name in names}
    unset = {name for name in names if not setters[name] and name not in POSITIONAL}
    assert unset | {name for name in names if len(readers[name]) < 2} == SINGLE["AttentionContext"]
