"""What the classes of the catalogue share: options with a tag, unions of them, and how they judge themselves."""

import dataclasses
import difflib
import functools
import math
import types
from collections.abc import Iterable, Mapping
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from tfm.config.json_text import check_text

# What no model and no text exceeds: so nothing is built of absurd sizes.
MAX_LAYERS, MAX_WIDTH, MAX_LENGTH = 1 << 12, 1 << 20, 1 << 24

_cached_hints = functools.cache(get_type_hints)


def type_hints(cls: Any) -> dict[str, Any]:
    """The types of the fields of a dataclass."""
    return _cached_hints(cls)


# What a value of a type is called in an error.
TYPE_NAMES = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    list: "a list",
    dict: "an object",
}
PLURALS = {int: "whole numbers", float: "numbers", bool: "true or false", str: "texts", list: "lists", dict: "objects"}

# Whole numbers have 64 bits, and devices compute in float32: larger ones are infinite there.
MAX_INT, MAX_FLOAT = 2**63 - 1, 3.4e38


class Range(NamedTuple):
    """The numbers that a field may have, as `Annotated[int, Range(1)]`: from `minimum` to `maximum`."""

    minimum: float = -math.inf
    maximum: float = math.inf

    def check(self, key: str, value: Any) -> Any:
        """The value, None too. Raises ValueError where it lies outside."""
        if value is not None and not value >= self.minimum:
            raise ValueError(f"{key}={value} must be at least {self.minimum}")
        if value is not None and not value <= self.maximum:
            raise ValueError(f"{key}={value} must be at most {self.maximum}")
        return value


class Options:
    """The options of one variant: a frozen dataclass whose `name` is its tag. It judges itself in `__post_init__`."""

    name: str
    reads_packed: ClassVar[bool] = True  # several texts may share a row, and none sees another
    depends_on_heads: ClassVar[bool] = False  # what a head gets depends on how many heads there are
    reads_segments: ClassVar[bool] = False  # a token may also see the states of a segment of the text before its own
    keeps_halves: ClassVar[bool] = False  # the halves of the stream, a direction of reading each, never meet
    recomputes: ClassVar[bool] = False  # the backward pass computes again what layers have read
    streams: ClassVar[int] = 1  # what follows the last layer is as wide as so many streams

    def __post_init__(self):
        check_fields(self)

    def check(self, config: Any) -> None:
        """Raises ValueError where a model of this configuration cannot have these options."""

    def max_length(self, config: Any) -> int | None:
        """The longest text that a model with these options reads; None without a limit."""
        return None

    def in_encoder(self, config: Any) -> Self:
        """These options in the encoder of a translation model of this configuration."""
        return self

    def within(self, tokens: int) -> Any:
        """These options where a token sees at most so many tokens before itself."""
        return self

    def conditioned(self) -> Self:
        """The options of a decoder whose layers also read a vector of another text. Raises ValueError without such."""
        raise ValueError(f"mixer={self.name} reads no vector of another text; try mixer=gru or mixer=lstm")


def tag(name: str) -> Any:
    """The field `name` of an option class: always this text, and part of `dataclasses.asdict`."""
    return dataclasses.field(default=name, init=False)


@functools.cache
def alternatives(hint: Any) -> dict[str, type]:
    """The option classes of a union by tag; of one class alone, that one; {} for any other type."""
    return {cls.name: cls for cls in _members(hint) if isinstance(cls, type) and issubclass(cls, Options)}


@functools.cache
def is_list(hint: Any) -> bool:
    """Whether a field holds a tuple of dataclasses."""
    return get_origin(hint) is tuple and dataclasses.is_dataclass(get_args(hint)[0])


@functools.cache
def is_optional(hint: Any) -> bool:
    """Whether a field may be None."""
    return type(None) in _members(hint)


def _members(hint: Any) -> tuple[Any, ...]:
    """The types of a union; any other type alone."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def check_type(key: str, value: Any, hint: Any) -> Any:
    """A value that has the type of its field.

    A type is int, float, bool, str, Literal, list[T], dict[str, T] or TypedDict, a union of these and None, or
    Annotated[T, Range]. A whole number may stand for a float. Fields that a TypedDict does not name pass.

    Raises ValueError for another type, a number that is not finite or too large, and text with NUL or surrogates.
    """
    if value is None and is_optional(hint):
        return None
    kind = _kind_for(value, hint)
    origin = get_origin(kind) or kind
    if origin is Annotated:
        base, limits = get_args(kind)
        return limits.check(key, check_type(key, value, base))
    wanted = plain_type(kind)
    if wanted is float and type(value) is int:
        wanted = int
    if wanted in TYPE_NAMES and type(value) is not wanted:
        raise ValueError(f"{key}={_abbreviate(value)} must be {type_name(hint)}")
    if wanted in (int, float):
        return _checked_number(key, value, plain_type(kind))
    if wanted is str:
        check_text(f"{key}={_abbreviate(value)}", value)
        if origin is Literal and value not in get_args(kind):
            raise ValueError(f"{key}={value} is unknown{suggest(value, get_args(kind))}")
    if origin is list:
        return [check_type(f"{key}[{index}]", member, *get_args(kind)) for index, member in enumerate(value)]
    if origin is dict:
        return {name: check_type(f"{key}.{name}", member, get_args(kind)[1]) for name, member in value.items()}
    if is_typeddict(kind):
        return dict(value) | check_object(key, value, get_type_hints(kind, include_extras=True))
    return value


def check_object(key: str, values: Mapping[str, Any], hints: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an object that have a type, in that type. Raises ValueError as `check_type` does."""
    prefix = f"{key}." if key and not key.endswith(" ") else key
    return {name: check_type(prefix + name, values[name], hint) for name, hint in hints.items() if name in values}


def _kind_for(value: Any, hint: Any) -> Any:
    """The type of a union that a value may have; the first one where it has none of them."""
    kinds = [kind for kind in _members(hint) if kind is not type(None)]
    return next((kind for kind in kinds if plain_type(kind) is type(value)), kinds[0])


def _checked_number(key: str, value: Any, kind: type) -> Any:
    """A number that computers can compute with."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{key}={value} must be a finite number")
    if abs(value) > (MAX_INT if kind is int else MAX_FLOAT):
        raise ValueError(f"{key}={_abbreviate(value)} is too large for a number of {64 if kind is int else 32} bits")
    return kind(value)


def _abbreviate(value: Any) -> str:
    """A value as an error shows it."""
    is_short = not isinstance(value, int) or value.bit_length() <= 256  # Python writes no decimals of longer ones
    text = repr(value) if is_short else f"{value:#x}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def plain_type(hint: Any) -> type:
    """The type of the values of a field beside None: int, float, bool, str, list or dict."""
    kind = next(kind for kind in _members(hint) if kind is not type(None))
    if get_origin(kind) is Annotated:
        return plain_type(get_args(kind)[0])
    if is_typeddict(kind):
        return dict
    return str if get_origin(kind) is Literal or alternatives(hint) else get_origin(kind) or kind


def type_name(hint: Any) -> str:
    """What the values of a field are called in an error."""
    kinds = dict.fromkeys(_type_name(kind) for kind in _members(hint) if kind is not type(None))
    return " or ".join([*kinds, *(["none"] if is_optional(hint) else [])])


def _type_name(kind: Any) -> str:
    """The name of one type; that of a list says of what."""
    name, members = TYPE_NAMES[plain_type(kind)], get_args(kind)
    return f"{name} of {PLURALS[plain_type(members[0])]}" if plain_type(kind) is list and members else name


def check_fields(config: Any) -> None:
    """Raises ValueError where a field of a dataclass has another type, or another value than its Literal allows."""
    for name, hint in type_hints(type(config)).items():
        value, choices = getattr(config, name), choices_of(type(config), name)
        if choices and value not in choices and not (value is None and is_optional(hint)):
            raise ValueError(f"{name}={value} is unknown{suggest(str(value), choices)}")
        if classes := alternatives(hint):
            if not isinstance(value, tuple(classes.values())) and not (value is None and is_optional(hint)):
                raise ValueError(
                    f"{name}={value!r} must be an object of {', '.join(cls.__name__ for cls in classes.values())}"
                )
        elif plain_type(hint) in (int, float, bool, str):
            check_type(name, value, hint)


def check_minimum(config: Any, **minimums: float) -> None:
    """Raises ValueError for a field that is below its minimum; None passes."""
    for name, minimum in minimums.items():
        value = getattr(config, name)
        if value is not None and not value >= minimum:
            or_none = ", or none" if is_optional(type_hints(type(config))[name]) else ""
            raise ValueError(f"{name}={value} must be at least {minimum}{or_none}")


def check_maximum(config: Any, reason: str, **maximums: float) -> None:
    """Raises ValueError for a field that is above its maximum, with the reason for it; None passes."""
    for name, maximum in maximums.items():
        value = getattr(config, name)
        if value is not None and not value <= maximum:
            raise ValueError(f"{name}={value} must be at most {maximum}: {reason}")


def check_rates(config: Any, *names: str, usual: str = "") -> None:
    """Raises ValueError for a field outside [0, 1), with what is usual; None passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not 0 <= value < 1:
            raise ValueError(f"{name}={value} must be at least 0 and less than 1{usual and f'; {usual}'}")


def choices_of(cls: type, name: str) -> tuple[str, ...]:
    """The values that a field of type Literal may take; () for any other field."""
    literals = [kind for kind in _members(type_hints(cls)[name]) if get_origin(kind) is Literal]
    return get_args(literals[0]) if literals else ()


def suggest(word: str, names: Iterable[str]) -> str:
    """The second half of an "unknown name" sentence: the nearest known name, or all of them."""
    names = list(names)
    suggestion = nearest(word, names)
    return f"; did you mean {suggestion}?" if suggestion else f"; known are {', '.join(names)}"


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The known name nearest to a misspelt one, whatever its case."""
    by_lower = {name.lower(): name for name in names}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[matches[0]] if matches else None


def nearest_divisor(size: int, total: int) -> int:
    """The divisor of `total` nearest to `size`."""
    return min((n for n in range(1, total + 1) if total % n == 0), key=lambda n: abs(n - size))
