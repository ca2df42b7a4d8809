"""Nested frozen dataclasses as dotted names and values, and back.

    mixer=linformer            a field that is a union of option classes: which class, by its `name`
    mixer.rank=64              an option of that class
    period=3                   a list of dataclasses: how many
    period.0.mixer=linformer   a field of one element
    period.mixer=linformer     the same field of all elements

Flags, run.json and the fields of Hugging Face folders all pass through `override`.
"""

import dataclasses
import difflib
import functools
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

type_hints = functools.cache(get_type_hints)

# What a value of a type is called in an error.
TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


class Options:
    """The options of one variant: a frozen dataclass whose `name` is its tag. It judges itself in `__post_init__`."""

    name: str

    def check(self, config: Any) -> None:
        """Raises ValueError where a model of this configuration cannot have these options."""

    def max_length(self, config: Any) -> int | None:
        """The longest text that a model with these options reads; None without a limit."""
        return None


def tag(name: str) -> Any:
    """The field `name` of an option class: always this text, and part of `dataclasses.asdict`."""
    return dataclasses.field(default=name, init=False)


def alternatives(hint: Any) -> dict[str, type]:
    """The option classes of a union by tag; of one class alone, that one; {} for any other type."""
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return {cls.name: cls for cls in members if dataclasses.is_dataclass(cls) and hasattr(cls, "name")}


def is_list(hint: Any) -> bool:
    """Whether a field holds a tuple of dataclasses."""
    return get_origin(hint) is tuple and dataclasses.is_dataclass(get_args(hint)[0])


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted names and values of a dataclass, the tag of a chosen class under the name of its field."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value, key = getattr(config, field.name), prefix + field.name
        if is_list(type_hints(type(config))[field.name]):
            values[key] = len(value)
            for index, element in enumerate(value):
                values |= flatten(element, f"{key}.{index}.")
        elif dataclasses.is_dataclass(value):
            nested = flatten(value, f"{key}.")
            if f"{key}.name" in nested:
                values[key] = nested.pop(f"{key}.name")
            values |= nested
        else:
            values[key] = value
    return values


def override(config: T, values: Mapping[str, Any]) -> T:
    """The dataclass with other values by dotted name; another class of a union starts from its own defaults.

    Raises ValueError for an unknown name, with the nearest known one, for a value of another type, and for
    whatever the dataclasses refuse.
    """
    used: set[str] = set()
    result = _override(config, values, ("",), used)
    unknown = [name for name in values if name not in used]
    if unknown:
        raise ValueError(f"{unknown[0]} is unknown{suggest(unknown[0], flatten(result))}")
    return result


def _override(config: Any, values: Mapping[str, Any], prefixes: Sequence[str], used: set[str]) -> Any:
    """`override` of a part; later prefixes win."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        if not field.init:
            continue
        keys = [prefix + field.name for prefix in prefixes]
        set_keys = [key for key in keys if key in values]
        used.update(set_keys)
        value, hint = getattr(config, field.name), type_hints(type(config))[field.name]
        dotted = [f"{key}." for key in keys]
        if alternatives(hint):
            changes[field.name] = _override_choice(value, hint, set_keys, (values, dotted, used))
        elif is_list(hint):
            count = _typed(set_keys[-1], values[set_keys[-1]], int) if set_keys else len(value)
            elements = (value + (get_args(hint)[0](),) * (count - len(value)))[:count]
            changes[field.name] = tuple(
                _override(element, values, [*dotted, *(f"{prefix}{index}." for prefix in dotted)], used)
                for index, element in enumerate(elements)
            )
        elif dataclasses.is_dataclass(value):
            changes[field.name] = _override(value, values, dotted, used)
        elif set_keys:
            changes[field.name] = _typed(set_keys[-1], values[set_keys[-1]], hint)
    try:
        return dataclasses.replace(config, **changes)
    except ValueError as error:
        raise ValueError(f"{prefixes[-1]}{error}") from error


def _override_choice(value: Any, hint: Any, set_keys: list[str], nested: tuple) -> Any:
    """The options of a union; `nested` are the arguments of `_override` for what is inside."""
    values, dotted, used = nested
    classes, name = alternatives(hint), getattr(value, "name", None)
    for key in set_keys:
        name = values[key]
        if name is None and type(None) in get_args(hint):
            return None
        if name not in classes:
            raise ValueError(f"{key}={name} is unknown{suggest(str(name), classes)}")
    if name is None:
        return None
    start = value if name == getattr(value, "name", None) else classes[name]()
    return _override(start, values, dotted, used)


def _typed(key: str, value: Any, hint: Any) -> Any:
    """A value of the type of a field. Raises ValueError for another type."""
    types_ = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if value is None and type(None) in types_:
        return None
    wanted = next(kind for kind in types_ if kind is not type(None))
    if get_origin(wanted) is Literal:
        wanted = str
    if wanted is float and type(value) is int:
        return float(value)
    if wanted in TYPE_NAMES and type(value) is not wanted:
        or_none = " or none" if type(None) in types_ else ""
        raise ValueError(f"{key}={value!r} must be {TYPE_NAMES[wanted]}{or_none}")
    return value


def check_choices(config: Any) -> None:
    """Raises ValueError where a field of type Literal has another value than those of its type."""
    for name, hint in type_hints(type(config)).items():
        if get_origin(hint) is Literal and getattr(config, name) not in get_args(hint):
            value = getattr(config, name)
            raise ValueError(f"{name}={value} is unknown{suggest(str(value), get_args(hint))}")


def check_minimum(config: Any, **minimums: float) -> None:
    """Raises ValueError for a field that is below its minimum; None passes."""
    for name, minimum in minimums.items():
        value = getattr(config, name)
        if value is not None and not value >= minimum:
            raise ValueError(f"{name}={value} must be at least {minimum}")


def choices_of(cls: type, name: str) -> tuple[str, ...]:
    """The values that a field of type Literal may take."""
    return get_args(type_hints(cls)[name])


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
