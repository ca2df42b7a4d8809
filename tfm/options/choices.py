"""What the classes of the catalogue share: options with a tag, unions of them, and how they judge themselves."""

import dataclasses
import functools
import math
import operator
import types
from collections.abc import Callable, Mapping
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from tfm.options.errors import abbreviate, suggest
from tfm.options.json_text import text_fault
from tfm.options.model import ModelConfig

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

F = TypeVar("F", bound=Callable[..., object])

# A class that becomes a dataclass.
C = TypeVar("C")

# The tag of an option class: one text, a Literal.
Tag = TypeVar("Tag", bound=str)

# The annotation of a field: a class, a union, or a form of `typing`.
Hint = object

# What no model and no text exceeds: so nothing is built of absurd sizes.
MAX_LAYERS, MAX_WIDTH, MAX_LENGTH = 1 << 12, 1 << 20, 1 << 24


def _cached(function: F) -> F:
    """`functools.cache`, which would forget the types of arguments."""
    return functools.cache(function)  # type: ignore[return-value]


@_cached
def type_hints(cls: type) -> dict[str, Hint]:
    """The types of the fields of a dataclass."""
    return get_type_hints(cls)


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

    def check(self, key: str, value: float | None) -> float | None:
        """The value, None too. Raises ValueError where it lies outside."""
        if value is not None and not value >= self.minimum:
            raise ValueError(f"{key}={value} must be at least {self.minimum}")
        if value is not None and not value <= self.maximum:
            raise ValueError(f"{key}={value} must be at most {self.maximum}")
        return value


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: type[C]) -> type[C]:
    """As `dataclasses.dataclass(frozen=True)`, which writes and compiles five more methods for each class: of some 130
    classes of options, these took 40 % of the time of `--help`."""
    dataclasses.dataclass(eq=False, repr=False)(cls)
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    values: Callable[[object], object] = operator.attrgetter(*fields)

    def set_once(self: C, name: str, value: object) -> None:
        if name not in fields or not fields[name].init or name in vars(self):
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def delete(_: C, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def is_equal(self: C, operand: object) -> bool:
        return values(self) == values(operand) if type(self) is type(operand) else NotImplemented

    def text(self: C) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in fields)})"

    def hashed(self: C) -> int:
        return hash(values(self))

    methods = dict(__setattr__=set_once, __delattr__=delete, __eq__=is_equal, __hash__=hashed, __repr__=text)
    for name, method in methods.items():
        setattr(cls, name, method)
    return cls


class Options:
    """The options of one variant: a frozen dataclass whose `name` is its tag. It judges itself in `__post_init__`."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    name: str
    reads_packed: ClassVar[bool] = True  # several texts may share a row, and none sees another

    def __post_init__(self):
        check_fields(self)

    def check(self, config: ModelConfig) -> None:
        """Raises ValueError where a model of this configuration cannot have these options."""

    def max_length(self, config: ModelConfig) -> int | None:
        """The longest text that a model with these options reads; None without a limit."""
        return None

    def in_encoder(self, config: ModelConfig) -> Self:
        """These options in the encoder of a translation model of this configuration."""
        return self

    def within(self, tokens: int) -> Any:
        """These options where a token sees at most `tokens` tokens before itself."""
        return self


def tag(name: Tag) -> Tag:
    """The field `name` of an option class: always this text, and part of `dataclasses.asdict`."""
    return dataclasses.field(default=name, init=False)


@_cached
def alternatives(hint: Hint) -> dict[str, type[Options]]:
    """The option classes of a union by tag; of one class alone, that one; {} for any other type."""
    return {cls.name: cls for cls in kinds_of(hint) if isinstance(cls, type) and issubclass(cls, Options)}


@_cached
def is_optional(hint: Hint) -> bool:
    """Whether a field may be None."""
    return get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)


@_cached
def kinds_of(hint: Hint) -> tuple[Any, ...]:
    """The types of a union, None left out; any other type alone."""
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return tuple(kind for kind in members if kind is not type(None))


@_cached
def plain_type(hint: Hint) -> type:
    """The type of the values of a field beside None: int, float, bool, str, list or dict."""
    kind = kinds_of(hint)[0]
    if get_origin(kind) is Annotated:
        return plain_type(get_args(kind)[0])
    if is_typeddict(kind):
        return dict
    return str if get_origin(kind) is Literal or alternatives(hint) else get_origin(kind) or kind


@_cached
def choices_of(cls: type, name: str) -> tuple[str, ...]:
    """The values that a field of type Literal may take; () for any other field."""
    for kind in kinds_of(type_hints(cls)[name]):
        if get_origin(kind) is Literal:
            return get_args(kind)
    return ()


def check_type(key: str, value: Any, hint: Hint) -> Any:
    """A value that has the type of its field.

    A type is int, float, bool, str, Literal, list[T], dict[str, T] or TypedDict, a union of these and None, or
    Annotated[T, Range]. A whole number may stand for a float. Fields that a TypedDict does not name pass.

    Raises ValueError for another type, a number that is not finite or too large, and text with NUL or surrogates.
    """
    if value is None and is_optional(hint):
        return None
    kind = _kind_for(value, hint)
    if get_origin(kind) is Annotated:
        base, limits = get_args(kind)
        return limits.check(key, check_type(key, value, base))
    plain = plain_type(kind)
    is_exact = type(value) is plain or (plain is float and type(value) is int)
    if plain in TYPE_NAMES and not is_exact:
        raise ValueError(f"{key}={abbreviate(value)} must be {type_name(hint)}")
    if plain in (int, float):
        return _checked_number(key, value, plain)
    if plain is str:
        if fault := text_fault(value):
            raise ValueError(f"{key}={abbreviate(value)} {fault}")
        if get_origin(kind) is Literal and value not in get_args(kind):
            raise ValueError(f"{key}={value} is unknown{suggest(value, get_args(kind))}")
    if get_origin(kind) is list:
        return [check_type(f"{key}[{index}]", member, *get_args(kind)) for index, member in enumerate(value)]
    if get_origin(kind) is dict:
        return {name: check_type(f"{key}.{name}", member, get_args(kind)[1]) for name, member in value.items()}
    if is_typeddict(kind):
        return dict(value) | check_object(key, value, get_type_hints(kind, include_extras=True))
    return value


def check_object(key: str, values: Mapping[str, object], hints: Mapping[str, Hint]) -> dict[str, Any]:
    """The fields of an object that have a type, in that type. Raises ValueError as `check_type` does."""
    prefix = f"{key}." if key and not key.endswith(" ") else key
    return {name: check_type(prefix + name, values[name], hint) for name, hint in hints.items() if name in values}


def _kind_for(value: object, hint: Hint) -> Hint:
    """The type of a union that a value may have; the first one where it has none of them."""
    kinds = kinds_of(hint)
    for kind in kinds:
        if plain_type(kind) is type(value):
            return kind
    return kinds[0]


def _checked_number(key: str, value: float, kind: type) -> float:
    """A finite number of 64 bits (int) or 32 bits (float)."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{key}={value} must be a finite number")
    if abs(value) > (MAX_INT if kind is int else MAX_FLOAT):
        raise ValueError(f"{key}={abbreviate(value)} is too large for a number of {64 if kind is int else 32} bits")
    return kind(value)


def type_name(hint: Hint) -> str:
    """What the values of a field are called in an error."""
    names = dict.fromkeys(map(_type_name, kinds_of(hint)))
    return " or ".join([*names, *(["none"] if is_optional(hint) else [])])


def _type_name(kind: Hint) -> str:
    """The name of one type; that of a list says of what."""
    name, members = TYPE_NAMES[plain_type(kind)], get_args(kind)
    return f"{name} of {PLURALS[plain_type(members[0])]}" if plain_type(kind) is list and members else name


def check_fields(config: "DataclassInstance") -> None:
    """Raises ValueError where a field of a dataclass has another type, or another value than its Literal allows."""
    cls = type(config)
    for field in dataclasses.fields(config):
        name, value, hint = field.name, getattr(config, field.name), type_hints(cls)[field.name]
        if value is None and is_optional(hint):
            continue
        choices, classes = choices_of(cls, name), alternatives(hint)
        if choices and value not in choices:
            raise ValueError(f"{name}={value} is unknown{suggest(str(value), choices)}")
        if classes and not isinstance(value, tuple(classes.values())):
            names = ", ".join(options.__name__ for options in classes.values())
            raise ValueError(f"{name}={value!r} must be an object of {names}")
        if not classes and plain_type(hint) in (int, float, bool, str):
            check_type(name, value, hint)


def check_minimum(config: "DataclassInstance", **minimums: float) -> None:
    """Raises ValueError for a field that is below its minimum; None passes."""
    for name, minimum in minimums.items():
        value = getattr(config, name)
        if value is not None and not value >= minimum:
            or_none = ", or none" if is_optional(type_hints(type(config))[name]) else ""
            raise ValueError(f"{name}={value} must be at least {minimum}{or_none}")


def check_maximum(config: "DataclassInstance", reason: str, **maximums: float) -> None:
    """Raises ValueError for a field that is above its maximum, with the reason for it; None passes."""
    for name, maximum in maximums.items():
        value = getattr(config, name)
        if value is not None and not value <= maximum:
            raise ValueError(f"{name}={value} must be at most {maximum}: {reason}")


def check_rates(config: "DataclassInstance", *names: str, usual: str = "") -> None:
    """Raises ValueError for a field outside [0, 1), with what is usual; None passes."""
    for name in names:
        value = getattr(config, name)
        if value is not None and not 0 <= value < 1:
            raise ValueError(f"{name}={value} must be at least 0 and less than 1{usual and f'; {usual}'}")
