"""Command-line flags for nested dataclasses: `--section.field=value`, read and explained.

A flag is a dotted field name; its help is the field's line in the class docstring. Presets, saved runs and the command
line are layers of dotted names and values, which `tfm.override` lays over one another. It reads the texts of flags by
the types of the classes that the names of unions choose.
"""

import dataclasses
import math
import re
import textwrap
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tfm.config.layers import Layer
from tfm.options import choices, dotted
from tfm.options.errors import nearest
from train import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


T = TypeVar("T", bound="DataclassInstance")

# Flags that name what is written, in all commands.
WRITTEN = ("out", "to", "plot")


class Text(NamedTuple):
    """A flag as it stands on the command line; `text` is None for a bare `--flag`."""

    flag: str
    text: str | None


def parse(argv: Sequence[str], aliases: Mapping[str, str] | None = None) -> dict[str, Text]:
    """`--a.b=1 --c d --e` -> texts by dotted name. Raises UserError for a word that is no flag, and for a URL where
    something is written."""
    texts, words = {}, list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            raise UserError(f"{word!r} is not a flag; write --name=value")
        flag, equals, text = word[2:].partition("=")
        has_next = bool(words) and not words[0].startswith("--")
        value = text if equals else words.pop(0) if has_next else None
        if flag in WRITTEN and "://" in (value or ""):
            raise UserError(f"--{flag}={value} is a URL, and this writes files; name a path, and copy it then")
        texts[(aliases or {}).get(flag, flag.replace("-", "_"))] = Text(flag, value)
    return texts


def read(key: str, value: Any, hint: Any) -> Any:
    """A value in the type of its field; a `Text` becomes one. Raises UserError for a text that does not."""
    if not isinstance(value, Text):
        return choices.check_type(key, value, hint)
    flag, text = value
    kind = choices.plain_type(hint)
    if text is None and kind is not bool:
        raise UserError(f"--{flag} needs a value: --{flag}={kind.__name__.upper()}")
    if text is None or (kind is bool and text.lower() in ("true", "false")):
        return text is None or text.lower() == "true"
    classes = choices.alternatives(hint)
    words_for_none = ("none", "model") if classes else ("none",)  # "model": a layer takes the model's own choice
    if choices.is_optional(hint) and text.lower() in words_for_none and text not in classes:
        return None
    try:
        parsed: Any = kind(text.replace("_", "")) if kind in (int, float) else text
        if kind is bool or (kind is float and not math.isfinite(parsed)):
            raise ValueError
    except ValueError as error:
        raise UserError(f"--{flag}={text} must be {choices.type_name(hint)}") from error
    try:
        return parsed if classes else choices.check_type(flag, parsed, kind)
    except ValueError as error:
        raise UserError(_on_flag(error)) from error


def show(value: Any) -> str:
    """The text that is read as this value."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def build(cls: type[T], *layers: Mapping[str, Any], aliases: Iterable[str] = ()) -> T:
    """The dataclass with the values and texts of all layers. Raises UserError for what it refuses."""
    try:
        return dotted.override(dotted.unchecked(cls, {}), *layers, read=read)
    except dotted.UnknownNameError as error:
        names = [*aliases, *map(_dashed, error.names)]
        of_model = f"model.{_dashed(error.name)}"
        suggestion = of_model if of_model in names else nearest(_dashed(error.name), names)
        remedy = f"did you mean {suggestion}?" if suggestion else "--help lists all flags"
        raise UserError(f"unknown flag --{_dashed(error.name)}; {remedy}") from error
    except ValueError as error:
        raise UserError(_on_flag(error)) from error


def _dashed(name: str) -> str:
    """A dotted name as flags spell it."""
    return name.replace("_", "-")


def _on_flag(error: ValueError) -> str:
    """The sentence on a field as one on its flag."""
    name, sign, rest = str(error).partition("=")
    return f"--{_dashed(name)}{sign}{rest}" if re.fullmatch(r"[\w.]+", name) else f"--{error}"


def options(cls: type[T], usage: str, argv: Sequence[str]) -> T | None:
    """The options of a command that has no presets; None after printing its `--help`."""
    return None if print_help(cls, usage, argv) else build(cls, parse(argv))


def print_help(cls: type, usage: str, argv: Sequence[str]) -> bool:
    """Prints the `--help` of a command that has no presets, and returns True, if it is asked for."""
    is_asked = not {"--help", "-h"}.isdisjoint(argv)
    if is_asked:
        print(format_help(usage, flags_of(dotted.unchecked(cls, {}))))
    return is_asked


def explicit_options(config: Any, argv: Sequence[str]) -> dict[str, Any]:
    """The options that the command line names, and their values."""
    return {name: getattr(config, name) for name in parse(argv)}


def split_argv(argv: Sequence[str], names: Container[str]) -> tuple[list[str], list[str]]:
    """The words of the command line that belong to the named flags, with their values, and the rest.

    A name that ends with a dot stands for the flags of a section.
    """
    named: list[str] = []
    rest: list[str] = []
    current = rest
    for word in argv:
        if word.startswith("--"):
            name = word[2:].partition("=")[0].replace("-", "_")
            section = name[: name.find(".") + 1]
            current = named if name in names or section in names else rest
        current.append(word)
    return named, rest


class Flag(NamedTuple):
    """A field of a configuration.

    name: its dotted name
    value: its value; of a union the tag of the class, of a list the count
    default: the same of a new object
    help: its line of the class docstring
    variants: of a union, what its classes are
    is_set: it is neither none nor an empty list
    """

    name: str
    value: Any
    default: Any
    help: str
    variants: Mapping[str, str] = {}
    is_set: bool = True


def flags_of(config: Any, prefix: str = "") -> Iterator[Flag]:
    """The fields of a dataclass and of the classes chosen in it, in their order; those that it inherits come first."""
    docstrings = "\n".join(cls.__doc__ or "" for cls in reversed(type(config).__mro__))
    helps = dict(line.strip().split(": ", 1) for line in docstrings.splitlines() if ": " in line)
    for field in dataclasses.fields(config):
        value, hint = getattr(config, field.name), choices.type_hints(type(config))[field.name]
        key, text = prefix + field.name, helps.get(field.name, "")
        if classes := choices.alternatives(hint):
            variants = {tag: (cls.__doc__ or "").partition("\n")[0] for tag, cls in classes.items()}
            # Without a class of its own, a layer takes the model's; "none" may be a tag.
            absent = "model" if isinstance(config, Layer) else None
            chosen, default = (getattr(options, "name", absent) for options in (value, field.default))
            yield Flag(key, chosen, default, f"{' | '.join(classes)}: {text}", variants, chosen is not None)
        elif dotted.is_list(hint):
            yield Flag(key, len(value), len(field.default), text, is_set=bool(value))  # type: ignore[arg-type]
            for index, element in enumerate(value):
                yield from flags_of(element, f"{key}.{index}.")
        elif field.init and not dataclasses.is_dataclass(value):
            yield Flag(key, value, field.default, text, is_set=value is not None)
        if dataclasses.is_dataclass(value):
            yield from flags_of(value, f"{key}.")


def format_help(
    usage: str,
    explained: Iterable[Flag],
    aliases: Mapping[str, str] | None = None,
    brief: Iterable[Flag] = (),
    show_variants: bool = False,
) -> str:
    """The text of `--help`: a line for each flag with its value; of `brief`, the values alone."""
    short = {name: alias for alias, name in (aliases or {}).items()}

    def shown(flag: Flag) -> str:
        return f"--{short.get(flag.name, _dashed(flag.name))}={show(flag.value)}"

    lines = [usage, ""]
    for flag in explained:
        lines.append(f"  {shown(flag):<36} {flag.help}")
        if show_variants:
            lines += [f"      {tag}: {text}" for tag, text in flag.variants.items()]
    packed = " ".join(map(shown, brief))
    lines += textwrap.wrap(
        packed, width=132, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )
    return "\n".join(lines)
