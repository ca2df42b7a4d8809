"""Command-line flags for nested dataclasses: `--section.field=value`, read, explained and corrected.

A flag is a dotted field name; its help is the field's line in the class docstring. Presets and saved runs are dictionaries of the same
dotted names, so that defaults, presets, a saved run and the command line are four layers of one thing. A section that is
`Annotated[Any, One, Other]` is one of several dataclasses: the one whose `name` the values give.
"""

import dataclasses
import math
import textwrap
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

from tfm.config.model import nearest
from train import UserError


class Flag(NamedTuple):
    """One field of a configuration."""

    type: type
    default: Any
    help: str


def flags_of(cls: type, values: Mapping[str, Any], prefix: str = "") -> dict[str, Flag]:
    """Every field of a dataclass and of the dataclasses in it, by dotted name."""
    helps = dict(line.strip().split(": ", 1) for line in (cls.__doc__ or "").splitlines() if ": " in line)
    flags: dict[str, Flag] = {}
    for field, kind in _fields(cls, values, prefix):
        key = prefix + field.name
        if dataclasses.is_dataclass(kind):
            flags |= flags_of(kind, values, f"{key}.")
        else:
            flags[key] = Flag(kind, field.default, helps[field.name])
    return flags


def _fields(cls: type, values: Mapping[str, Any], prefix: str) -> Iterator[tuple[dataclasses.Field, type]]:
    """The fields of a dataclass and their types; of several dataclasses, the one that the values name, else the first."""
    hints = get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        known = {kind.name: kind for kind in getattr(hints[field.name], "__metadata__", ())}
        name = values.get(f"{prefix}{field.name}.name", next(iter(known), None))
        yield field, known.get(name, hints[field.name])


def parse(argv: Sequence[str], flags: Mapping[str, Flag], aliases: Mapping[str, str]) -> dict[str, Any]:
    """`--a.b=1 --c d --e` -> {"a.b": 1, "c": "d", "e": True}, each value in the type of its flag.

    Raises UserError for an unknown flag, with the nearest known one, and for a value of the wrong type.
    """
    values, words = {}, list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise UserError(f"{word!r} is not a flag; write --name=value")
        name, equals, text = word[2:].partition("=")
        key = aliases.get(name, name.replace("-", "_"))
        if key not in flags:
            near = nearest(name, [*aliases, *(flag.replace("_", "-") for flag in flags)])
            raise UserError(
                f"unknown flag --{name}; " + (f"did you mean {near}?" if near else "--help lists all flags")
            )
        kind = flags[key].type
        if not equals and words and not words[0].startswith("--"):
            text = words.pop(0)
        elif not equals and kind is bool:
            text = "true"
        elif not equals:
            raise UserError(f"--{name} needs a value: --{name}={kind.__name__.upper()}")
        values[key] = convert(name, text, kind)
    return values


def divide(argv: Sequence[str], known: Container[str]) -> tuple[list[str], list[str]]:
    """The words of the command line that belong to the `known` flags, with their values, and all others."""
    own: list[str] = []
    others: list[str] = []
    current = others
    for word in argv:
        if word.startswith("--"):
            current = own if word[2:].partition("=")[0] in known else others
        current.append(word)
    return own, others


def convert(name: str, text: str, kind: type) -> Any:
    """The text of a flag in the flag's type. Raises UserError where it is not one."""
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind in (int, float):
        try:
            if math.isfinite(value := kind(text.replace("_", ""))):
                return value
        except (ValueError, OverflowError):
            pass
    if kind is str:
        return text
    wanted = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
    raise UserError(f"--{name}={text} must be {wanted}")


def build(cls: type, values: Mapping[str, Any], prefix: str = "") -> Any:
    """The dataclass whose fields are the dotted values, and defaults where there is none. Raises UserError for what the class refuses."""
    fields = {}
    for field, kind in _fields(cls, values, prefix):
        key = prefix + field.name
        if dataclasses.is_dataclass(kind):
            fields[field.name] = build(kind, values, f"{key}.")
        elif key in values:
            fields[field.name] = values[key]
    try:
        return cls(**fields)
    except ValueError as error:
        raise UserError(f"--{prefix}{error}") from error


def options(cls: type, usage: str, argv: Sequence[str]) -> Any:
    """The options of a command that has no presets; None after printing its `--help`."""
    flags = flags_of(cls, {})
    if {"--help", "-h"} & set(argv):
        print(explain(usage, flags, {}, {}))
        return None
    return build(cls, parse(argv, flags, {}))


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """The inverse of `build`: dotted names and values, from dataclasses or the dictionaries they are saved as."""
    values = (
        config if isinstance(config, Mapping) else {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    )
    flat: dict[str, Any] = {}
    for name, value in values.items():
        nested = isinstance(value, Mapping) or dataclasses.is_dataclass(value)
        flat |= flatten(value, f"{prefix}{name}.") if nested else {prefix + name: value}
    return flat


def explain(
    usage: str,
    flags: Mapping[str, Flag],
    aliases: Mapping[str, str],
    values: Mapping[str, Any],
    others: tuple[str, Sequence[str]] = ("", ()),
) -> str:
    """The text of `--help`: a line for each flag, with the value it would have; of `others`, under a title, the values alone."""
    short = {flag: alias for alias, flag in aliases.items()}
    lines, brief = [usage, ""], list[str]()
    for name, flag in flags.items():
        value = values.get(name, flag.default)
        shown = str(value).lower() if flag.type is bool else value
        head = f"  --{short.get(name, name.replace('_', '-'))}={shown}"
        if name in others[1]:
            brief.append(head)
        else:
            lines.append(f"{head:<38} {flag.help}")
    packed = textwrap.wrap("".join(brief), width=140, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join([*lines, *(["", others[0], *packed] if brief else [])])
