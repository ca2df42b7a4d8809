"""Nested frozen dataclasses as dotted names and values, and back.

    mixer=linformer            a field that is a union of option classes: which class, by its `name`
    mixer.rank=64              an option of that class
    period=3                   a list of dataclasses: how many
    period.0.mixer=linformer   a field of one element
    period.mixer=linformer     the same field of all elements

Flags, run.json and the fields of Hugging Face folders all pass through `override`.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, get_args

from tfm.config.choices import Options, alternatives, check_type, is_list, nearest, suggest, type_hints

T = TypeVar("T")

# Elements that a list of dataclasses may have.
MAX_ELEMENTS = 4096

# (dotted name, value, type of the field) -> a value of that type.
Read = Callable[[str, Any, Any], Any]


def flatten(config: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted names and values of a dataclass, the tag of a chosen class under the name of its field."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value, key = getattr(config, field.name), prefix + field.name
        hint = type_hints(type(config))[field.name]
        if is_list(hint):
            values[key] = len(value)
            for index, element in enumerate(value):
                values |= flatten(element, f"{key}.{index}.")
        elif isinstance(value, Options):
            values[key] = value.name
            values |= {name: option for name, option in flatten(value, f"{key}.").items() if name != f"{key}.name"}
        elif dataclasses.is_dataclass(value):
            values |= flatten(value, f"{key}.")
        else:
            values[key] = value
    return values


def flatten_saved(saved: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted names and values of a dataclass that went through `dataclasses.asdict` and JSON; a tag is `mixer.name`."""
    values: dict[str, Any] = {}
    for name, value in saved.items():
        key = prefix + name
        if isinstance(value, Mapping):
            values |= flatten_saved(value, f"{key}.")
        elif isinstance(value, list | tuple) and all(isinstance(element, Mapping) for element in value):
            values[key] = len(value)
            for index, element in enumerate(value):
                values |= flatten_saved(element, f"{key}.{index}.")
        else:
            values[key] = value
    return values


def hint_of(config: Any, name: str) -> Any:
    """The type of the field with this dotted name."""
    first, _, rest = name.partition(".")
    return hint_of(getattr(config, first), rest) if rest else type_hints(type(config))[first]


class UnknownNameError(ValueError):
    """A dotted name without a field.

    name: that name
    names: those that have one
    """

    def __init__(self, name: str, names: Iterable[str]):
        self.name, self.names = name, list(names)
        suggestion = nearest(name, self.names)
        first_words = dict.fromkeys(known_name.partition(".")[0] for known_name in self.names)
        super().__init__(f"{name} is unknown{suggest(name, [suggestion] if suggestion else first_words)}")


def override(config: T, *layers: Mapping[str, Any], read: Read | None = None) -> T:
    """The dataclass with the values of each layer, by dotted name, over those of the layer before.

    Another class of a union starts from its own defaults. The dataclasses judge the result of all layers. `read` turns
    a value into one of the type of its field; by default, values have that type.

    Raises UnknownNameError, and ValueError for a value of another type and for whatever the dataclasses refuse.
    """
    for values in layers:
        walk = _Walk(values, read or check_type, set())
        config = _override(config, walk, ("",))
        unknown = next((name for name in values if name not in walk.used), None)
        if unknown is not None:
            _refuse_other_class(config, unknown, unknown.split("."))
            raise UnknownNameError(unknown, flatten(config))
    return _checked(config)


class _Walk(NamedTuple):
    """The values of a layer, how they are read, and the names that a field was found for."""

    values: Mapping[str, Any]
    read: Read
    used: set[str]

    def find(self, keys: Iterable[str]) -> list[str]:
        """Those of the names that have a value."""
        names = [key for key in keys if key in self.values]
        self.used.update(names)
        return names

    def value(self, key: str, hint: Any) -> Any:
        """The value of a name, in the type of its field."""
        return self.read(key, self.values[key], hint)


def _override(config: Any, walk: _Walk, prefixes: Sequence[str]) -> Any:
    """A dataclass that is not judged yet; later prefixes win."""
    changed = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    for field in dataclasses.fields(config):
        if not field.init:
            continue
        value, hint = changed[field.name], type_hints(type(config))[field.name]
        keys = [prefix + field.name for prefix in prefixes]
        dotted = [f"{key}." for key in keys]
        if alternatives(hint):
            changed[field.name] = _override_choice(value, hint, walk, keys)
        elif is_list(hint):
            set_keys = walk.find(keys)
            count = walk.value(set_keys[-1], int) if set_keys else len(value)
            if not 0 <= count <= MAX_ELEMENTS:
                raise ValueError(f"{set_keys[-1]}={count} must be at least 0 and at most {MAX_ELEMENTS}")
            elements = (value + (get_args(hint)[0](),) * (count - len(value)))[:count]
            changed[field.name] = tuple(
                _override(element, walk, [*dotted, *(f"{prefix}{index}." for prefix in dotted)])
                for index, element in enumerate(elements)
            )
        elif dataclasses.is_dataclass(value):
            changed[field.name] = _override(value, walk, dotted)
        else:
            for key in walk.find(keys):
                changed[field.name] = walk.value(key, hint)
    return unchecked(type(config), changed)


def unchecked(cls: type[T], values: Mapping[str, Any]) -> T:
    """A dataclass of these fields, defaults where there is none, that has not judged itself."""
    result = object.__new__(cls)
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        object.__setattr__(result, field.name, values.get(field.name, field.default))
    return result


def _override_choice(value: Any, hint: Any, walk: _Walk, keys: Sequence[str]) -> Any:
    """The options of a union."""
    classes = alternatives(hint)
    for name in walk.find(name for key in keys for name in (key, f"{key}.name")):
        tag = walk.value(name, hint)
        if tag is not None and tag not in classes:
            raise ValueError(f"{name.removesuffix('.name')}={tag} is unknown{suggest(str(tag), classes)}")
        if tag != getattr(value, "name", None):
            value = None if tag is None else classes[tag]()
    return None if value is None else _override(value, walk, [f"{key}." for key in keys])


def _checked(config: Any, prefix: str = "") -> Any:
    """The same dataclass after all dataclasses in it have judged themselves, the innermost first."""
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value, key = getattr(config, field.name), prefix + field.name
        if dataclasses.is_dataclass(value):
            changed[field.name] = _checked(value, f"{key}.")
        elif is_list(type_hints(type(config))[field.name]):
            changed[field.name] = tuple(_checked(element, f"{key}.{index}.") for index, element in enumerate(value))
    try:
        return dataclasses.replace(config, **changed)
    except ValueError as error:
        raise ValueError(f"{prefix}{error}") from error


def _refuse_other_class(config: Any, name: str, words: Sequence[str]) -> None:
    """Raises ValueError where a dotted name is an option of another class than the chosen one; `words` lead to it."""
    field, *rest = words
    hint, value = type_hints(type(config)).get(field), getattr(config, field, None)
    if not rest or hint is None:
        return
    if is_list(hint):
        is_indexed = rest[0].isdigit()
        elements = (value or ())[int(rest[0]) :] if is_indexed else value
        if elements and rest[is_indexed:]:
            _refuse_other_class(elements[0], name, rest[is_indexed:])
        return
    tags = [tag for tag, cls in alternatives(hint).items() if rest[0] in type_hints(cls)]
    chosen = getattr(value, "name", None)
    if tags and chosen not in tags:
        slot = name.removesuffix(f".{'.'.join(rest)}")
        raise ValueError(f"{name} belongs to {slot}={' or '.join(tags)}, not to {chosen or 'none'}; leave it out")
    if dataclasses.is_dataclass(value):
        _refuse_other_class(value, name, rest)
