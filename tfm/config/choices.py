"""What the classes of the catalogue share: options with a tag, unions of them, and how they judge themselves."""

import dataclasses
import difflib
import functools
import types
from collections.abc import Iterable
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

_cached_hints = functools.cache(get_type_hints)


def type_hints(cls: Any) -> dict[str, Any]:
    """The types of the fields of a dataclass."""
    return _cached_hints(cls)


# What a value of a type is called in an error.
TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


class Options:
    """The options of one variant: a frozen dataclass whose `name` is its tag. It judges itself in `__post_init__`."""

    name: str
    reads_packed: ClassVar[bool] = True  # several texts may share a row, and none sees another

    def check(self, config: Any) -> None:
        """Raises ValueError where a model of this configuration cannot have these options."""

    def max_length(self, config: Any) -> int | None:
        """The longest text that a model with these options reads; None without a limit."""
        return None


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
    """A value that has the type of its field. Raises ValueError for another type."""
    if value is None and is_optional(hint):
        return None
    wanted = plain_type(hint)
    if wanted is float and type(value) is int:
        return float(value)
    if wanted in TYPE_NAMES and type(value) is not wanted:
        raise ValueError(f"{key}={value!r} must be {type_name(hint)}")
    return value


def plain_type(hint: Any) -> type:
    """The type of the values of a field beside None: int, float, bool or str."""
    wanted = next(kind for kind in _members(hint) if kind is not type(None))
    return str if get_origin(wanted) is Literal or alternatives(hint) else wanted


def type_name(hint: Any) -> str:
    """What the values of a field are called in an error."""
    return TYPE_NAMES[plain_type(hint)] + (" or none" if is_optional(hint) else "")


def check_choices(config: Any) -> None:
    """Raises ValueError where a field of type Literal has another value than those of its type."""
    for name, hint in type_hints(type(config)).items():
        value, choices = getattr(config, name), choices_of(type(config), name)
        if choices and value not in choices and not (value is None and is_optional(hint)):
            raise ValueError(f"{name}={value} is unknown{suggest(str(value), choices)}")


def check_minimum(config: Any, **minimums: float) -> None:
    """Raises ValueError for a field that is below its minimum; None passes."""
    for name, minimum in minimums.items():
        value = getattr(config, name)
        if value is not None and not value >= minimum:
            or_none = ", or none" if is_optional(type_hints(type(config))[name]) else ""
            raise ValueError(f"{name}={value} must be at least {minimum}{or_none}")


def choices_of(cls: type, name: str) -> tuple[str, ...]:
    """The values that a field of type Literal may take; () for any other field."""
    literals = [kind for kind in _members(type_hints(cls)[name]) if get_origin(kind) is Literal]
    return get_args(literals[0]) if literals else ()


def suggest(word: str, names: Iterable[str]) -> str:
    """The second half of an "unknown name" sentence: the nearest known name, or all of them."""
    names = list(names)
    near = nearest(word, names)
    return f"; did you mean {near}?" if near else f"; known are {', '.join(names)}"


def nearest(word: str, names: Iterable[str]) -> str | None:
    """The known name nearest to a misspelt one, whatever its case."""
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[near[0]] if near else None


def nearest_divisor(size: int, total: int) -> int:
    """The divisor of `total` nearest to `size`."""
    return min((n for n in range(1, total + 1) if total % n == 0), key=lambda n: abs(n - size))
