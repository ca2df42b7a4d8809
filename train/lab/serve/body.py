"""The fields of a request: read by name, checked, and none left over in silence."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias, final

from tfm.params import PyTree

# Texts of a request, at most, and characters of a text.
MAX_TEXTS, MAX_CHARACTERS = 256, 200_000


# A value of JSON: a tree.
Json: TypeAlias = PyTree


class Refused(Exception):  # noqa: N818 (the answer, no fault of ours)
    """A request that is not answered: its status of HTTP, and one sentence."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


def error_of(status: int, sentence: str) -> dict[str, Json]:
    """The body that says why a request is not answered."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": sentence, "type": kind, "code": status}}


class Interval(NamedTuple):
    """Numbers from `low` to `high`."""

    low: float
    high: float


@final
class Body:
    """The fields of a JSON object. Members raise Refused (422) for a value of another kind, and 413 for too much."""

    def __init__(self, content: bytes):
        """Raises Refused (422) for what is no JSON object."""
        try:
            fields = json.loads(content, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise Refused(422, f"the body is no JSON ({error}); send a JSON object") from error
        if not isinstance(fields, dict):
            raise Refused(422, f"the body is a JSON {_kind(fields)}; send an object")
        self.fields: dict[str, Json] = fields
        self._read: set[str] = set()

    @classmethod
    def of(cls, value: Json, name: str) -> "Body":
        """An object inside a body."""
        if not isinstance(value, dict):
            raise Refused(422, f"{name} is a JSON {_kind(value)}; send an object")
        body = cls(b"{}")
        body.fields = value
        return body

    def get(self, name: str) -> Json:
        """A field as it is; None where it is absent or null."""
        self._read.add(name)
        return self.fields.get(name)

    def text(self, name: str, default: str = "") -> str:
        """A string."""
        value = self.get(name)
        return default if value is None else _text(name, value)

    def texts(self, name: str) -> list[str]:
        """A string, or a list of strings."""
        value = self.get(name)
        values = self._list(name, [value] if isinstance(value, str) else value)
        return [_text(f"{name}[{index}]" if len(values) > 1 else name, text) for index, text in enumerate(values)]

    def pairs(self, name: str) -> list[tuple[str, ...]]:
        """A string or a list of strings and of pairs of them, as tuples."""
        value = self.get(name)
        values = self._list(name, [value] if isinstance(value, str) else value)
        for index, item in enumerate(values):
            if isinstance(item, list) and len(item) != 2:
                raise Refused(422, f"{name}[{index}] has {len(item)} texts; send a text, or a pair of two")
        parts = [item if isinstance(item, list) else [item] for item in values]
        return [tuple(_text(f"{name}[{index}]", text) for text in texts) for index, texts in enumerate(parts)]

    def numeric(self, name: str, default: float | None, limits: Interval, integer: bool = False) -> Json:
        """A number within limits; an integer where it is to be whole."""
        value = self.get(name)
        if value is None:
            return default
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or (integer and value != int(value)) or not limits.low <= value <= limits.high:
            kind = "an integer" if integer else "a number"
            raise Refused(422, f"{name} is {_shown(value)}; send {kind} from {limits.low:g} to {limits.high:g}")
        return int(value) if integer else float(value)

    def flag(self, name: str) -> bool:
        """True or false; false by default."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise Refused(422, f"{name} is {_shown(value)}; send true or false")
        return bool(value)

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """One of several words; the first by default."""
        value = self.get(name)
        if value is not None and value not in choices:
            raise Refused(422, f"{name} is {_shown(value)}; send {' or '.join(choices)}")
        return value or choices[0]

    def finish(self, neutral: Mapping[str, Sequence[Json]] | None = None):
        """Refuses fields that nobody has read, unless they have a value that changes nothing."""
        harmless = {"user": None, "metadata": None} | dict(neutral or {})
        for name, value in self.fields.items():
            if name in self._read or value is None:
                continue
            if name not in harmless:
                raise Refused(422, f"the field {_shown(name)} is not read here; leave it out")
            allowed = harmless[name]
            if allowed is not None and value not in allowed:
                raise Refused(422, f"{name} is {_shown(value)}, which is not done here; leave it out")

    def _list(self, name: str, values: Json) -> list[Json]:
        if not isinstance(values, list) or not values:
            raise Refused(422, f"{name} is {_shown(values)}; send a text, or a list of texts")
        if len(values) > MAX_TEXTS:
            raise Refused(413, f"{name} has {len(values)} texts, and a request may have {MAX_TEXTS}; send several")
        return values


def _text(name: str, value: Json) -> str:
    if not isinstance(value, str):
        raise Refused(422, f"{name} is {_shown(value)}; send a text")
    if len(value) > MAX_CHARACTERS:
        raise Refused(413, f"{name} has {len(value):,} characters, and a text may have {MAX_CHARACTERS:,}; cut it")
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise Refused(422, f"{name} has half a character (a lone surrogate); send whole ones")
    return value


def _shown(value: Json) -> str:
    """A value in a sentence, cut where it is long."""
    if value is None:
        return "absent"
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _kind(value: Json) -> str:
    names = {list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null")


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is no number of JSON")
