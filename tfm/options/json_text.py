"""Text and JSON that others wrote: read by one rule, and refused with the place where it is broken.

Everything here raises ValueError with one sentence that names the file, and the line, byte or field in it.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Union

# A value of JSON: null, true or false, a number, a text, a list or an object.
Json = Union[None, bool, int, float, str, Sequence["Json"], Mapping[str, "Json"]]  # noqa: UP007

# Bytes of a file with the fields of a model, a run or a tokenizer. The largest tokenizers have 35 MB.
MAX_BYTES = 256 << 20

# How deep lists and objects may stand in one another. The files of models and runs have less than 10 levels.
MAX_DEPTH = 64


def decode_text(data: bytes | bytearray, where: str) -> str:
    """UTF-8, with or without a byte order mark -> text. Raises ValueError for NUL and for bytes that are not UTF-8."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff") or data[:4] == b"\0\0\xfe\xff":
        name = "UTF-32" if b"\0\0" in data[:4] else "UTF-16"
        raise ValueError(f"{where} is {name}, as spreadsheets write it; convert it with iconv -f {name} -t UTF-8")
    zero = data.find(b"\0")
    if zero >= 0:
        line = data.count(b"\n", 0, zero) + 1
        raise ValueError(f"{where} is a binary file: line {line} has a NUL byte; give a text file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{where} is not UTF-8 (byte {error.start}); convert it, for example with iconv -t UTF-8"
        ) from error


def text_fault(text: str) -> str:
    """Why no file can hold a text: NUL, or surrogates, which stand for broken bytes; empty where nothing is wrong."""
    if "\0" in text:
        return "has a NUL character; leave it out"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"is not Unicode text (character {error.start}); correct it"
    return ""


def check_text(where: str, text: str) -> None:
    """Raises ValueError for text with a `text_fault`."""
    if fault := text_fault(text):
        raise ValueError(f"{where} {fault}")


def read_text(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """The text of a file. Raises OSError, and ValueError as `decode_text` does or for a file that is too large."""
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"{path} has more than {max_bytes >> 20} MB, too many for such a file; is it another one?")
    return decode_text(data, str(path))


def read_object(path: Path, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """The JSON object in a file. Raises OSError, and ValueError as `read_text` and `parse_object` do."""
    return parse_object(read_text(path, max_bytes), str(path))


def parse_object(text: str, where: str) -> dict[str, Any]:
    """A JSON object. Raises ValueError for any other text."""
    value = parse(text, where)
    if not isinstance(value, Mapping):
        kind = "null" if value is None else f"a {type(value).__name__}"
        raise ValueError(f"{where} is {kind}, not a JSON object; correct it")
    return dict(value)


def parse(text: str, where: str) -> Any:
    """A JSON value of at most MAX_DEPTH levels, with finite numbers, and text without NUL and surrogates."""
    try:
        value = _DECODER.decode(text)
    except RecursionError as error:
        raise ValueError(_too_deep(where)) from error
    except ValueError as error:
        raise ValueError(f"{where} is not JSON: {error}") from error
    # Only such texts can be too deep, or hold characters that UTF-8 cannot.
    if text.count("[") + text.count("{") > MAX_DEPTH or "\\u0000" in text or "\\ud" in text or "\\uD" in text:
        _check_members(value, where)
    return value


def _check_members(value: Json, where: str) -> None:
    """Raises ValueError for a value that is too deep, or holds broken text; level by level, without recursion."""
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH + 1):
        members: list[Json] = []
        for member in level:
            if isinstance(member, str) and (fault := text_fault(member)):
                raise ValueError(f"{where} {fault}")
            if isinstance(member, list):
                members += member
            elif isinstance(member, dict):
                members += [*member, *member.values()]
        if not members:
            return
        level = members
    raise ValueError(_too_deep(where))


def _too_deep(where: str) -> str:
    return f"{where} has lists and objects in one another, more than {MAX_DEPTH} deep; correct it"


def _finite(text: str) -> float:
    """A number. Raises ValueError where it is infinite."""
    value = float(text)
    return value if math.isfinite(value) else _not_a_number(text)


def _not_a_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:40]} is not a finite number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. Raises ValueError where a name stands twice with two values."""
    values = dict(pairs)
    if len(values) < len(pairs):
        for name, value in pairs:
            if value != values[name]:
                raise ValueError(f"an object has {name[:40]!r} twice, with two values; remove one")
    return values


_DECODER = json.JSONDecoder(parse_constant=_not_a_number, parse_float=_finite, object_pairs_hook=_unique)
