"""Nested frozen dataclasses as dotted names and values, and back.

    mixer=linformer            a field that is a union of option classes: which class, by its `name`
    mixer.rank=64              an option of that class
    period=3                   a list of dataclasses: how many
    period.0.mixer=linformer   a field of one element
    period.mixer=linformer     the same field of all elements

Flags, run.json and the fields of Hugging Face folders all pass through `override`.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, TypeVar, get_args, get_origin

from tfm.options.choices import Hint, Options, alternatives, check_type, type_hints
from tfm.options.errors import nearest, suggest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


T = TypeVar("T", bound="DataclassInstance")

# Elements that a list of dataclasses may have.
MAX_ELEMENTS = 4096

# Values of fields by their dotted names.
Values = dict[str, Any]

# (dotted name, value, type of the field) -> a value of that type.
Read = Callable[[str, Any, Hint], Any]


def _is_instance(value: object) -> "TypeGuard[DataclassInstance]":
    """Whether a value is a dataclass with fields of its own."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


@functools.cache
def is_list(hint: Hint) -> bool:
    """Whether a field holds a tuple of dataclasses."""
    return get_origin(hint) is tuple and dataclasses.is_dataclass(get_args(hint)[0])


def flatten(config: "DataclassInstance", prefix: str = "") -> Values:
    """Dotted names and values of a dataclass, the tag of a chosen class under the name of its field."""
    values: Values = {}
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
        elif _is_instance(value):
            values |= flatten(value, f"{key}.")
        else:
            values[key] = value
    return values


def flatten_saved(saved: Mapping[str, object], prefix: str = "") -> Values:
    """Dotted names and values of a dataclass that went through `dataclasses.asdict` and JSON; a tag is `mixer.name`."""
    values: Values = {}
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


def hint_of(config: object, name: str) -> Hint:
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


def override(config: T, *layers: Mapping[str, object], read: Read = check_type) -> T:
    """The dataclass with the values of each layer, by dotted name, over those of the layer before.

    Another class of a union starts from its own defaults. The dataclasses judge the result of all layers. `read` turns
    a value into one of the type of its field; by default, values have that type.

    Raises UnknownNameError, and ValueError for a value of another type and for whatever the dataclasses refuse.
    """
    for values in layers:
        layer = _Layer(values, read, set())
        config = _override(config, layer, [""])
        for name in values:
            if name not in layer.used:
                _refuse_other_class(config, name, name.split("."))
                raise UnknownNameError(name, flatten(config))
    return _checked(config)


class _Layer(NamedTuple):
    """The values of a layer, how they are read, and the names that a field was found for."""

    values: Mapping[str, object]
    read: Read
    used: set[str]

    def find(self, names: Iterable[str]) -> Iterator[tuple[str, object]]:
        """Those of the names that have a value, and that value."""
        for name in names:
            if name in self.values:
                self.used.add(name)
                yield name, self.values[name]


def _override(config: T, layer: _Layer, prefixes: Sequence[str]) -> T:
    """A dataclass that is not judged yet; its fields are called PREFIX.FIELD, and later prefixes win."""
    changed: Values = {}
    for field in dataclasses.fields(config):
        if not field.init:  # a tag
            continue
        value, hint = getattr(config, field.name), type_hints(type(config))[field.name]
        names = [f"{prefix}.{field.name}".removeprefix(".") for prefix in prefixes]
        if alternatives(hint):
            value = _override_choice(value, hint, layer, names)
        elif is_list(hint):
            value = _override_list(value, hint, layer, names)
        elif _is_instance(value):
            value = _override(value, layer, names)
        else:
            for name, text in layer.find(names):
                value = layer.read(name, text, hint)
        changed[field.name] = value
    return unchecked(type(config), changed)


def unchecked(cls: type[T], values: Mapping[str, object]) -> T:
    """A dataclass of these fields, defaults where there is none, that has not judged itself."""
    result = object.__new__(cls)
    for field in dataclasses.fields(cls):
        object.__setattr__(result, field.name, values.get(field.name, field.default))
    return result


def _override_choice(options: Options | None, hint: Hint, layer: _Layer, names: Sequence[str]) -> Options | None:
    """The options of a union; the name of a field, or that with `.name` behind it, says of which class."""
    classes = alternatives(hint)
    for field in names:
        for name, text in layer.find((field, f"{field}.name")):
            tag = layer.read(name, text, hint)
            if tag is not None and tag not in classes:
                raise ValueError(f"{field}={tag} is unknown{suggest(str(tag), classes)}")
            if tag is None:
                options = None
            elif options is None or options.name != tag:
                options = classes[tag]()
    return None if options is None else _override(options, layer, names)


def _override_list(elements: tuple, hint: Hint, layer: _Layer, names: Sequence[str]) -> tuple:
    """A tuple of dataclasses; names without an index set a field of all of them."""
    count = len(elements)
    for name, text in layer.find(names):
        count = layer.read(name, text, int)
        if not 0 <= count <= MAX_ELEMENTS:
            raise ValueError(f"{name}={count} must be at least 0 and at most {MAX_ELEMENTS}")
    changed = []
    for index in range(count):
        element = elements[index] if index < len(elements) else get_args(hint)[0]()
        changed.append(_override(element, layer, [*names, *(f"{name}.{index}" for name in names)]))
    return tuple(changed)


def _checked(config: T, prefix: str = "") -> T:
    """A dataclass after all dataclasses in it have judged themselves, the innermost first."""
    changed: Values = {}
    for field in dataclasses.fields(config):
        value, name = getattr(config, field.name), prefix + field.name
        if _is_instance(value):
            changed[field.name] = _checked(value, f"{name}.")
        elif is_list(type_hints(type(config))[field.name]):
            elements = enumerate(value)
            changed[field.name] = tuple(_checked(element, f"{name}.{index}.") for index, element in elements)
    try:
        return dataclasses.replace(config, **changed)
    except ValueError as error:
        raise ValueError(f"{prefix}{error}") from error


def _refuse_other_class(config: "DataclassInstance", name: str, words: Sequence[str]) -> None:
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
    if _is_instance(value):
        _refuse_other_class(value, name, rest)
