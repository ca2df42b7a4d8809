"""The fields of protobuf messages, without their schema."""

from collections.abc import Iterable, Iterator

# The fields of a message by their numbers: integers, or bytes of texts, floats and messages.
Message = dict[int, int | bytes]


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message, in order. Raises IndexError where it is truncated, and TypeError for other bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        field, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield field, value
            continue
        if wire not in (1, 2, 5):
            raise TypeError(f"wire type {wire}")
        size, at = _varint(data, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
        if at + size > len(data):
            raise IndexError(f"{size} bytes at {at}")
        yield field, data[at : at + size]
        at += size


def repeated(values: Iterable[tuple[int, int | bytes]], field: int) -> list[bytes]:
    """The messages in a repeated field, of all `fields` of a message. Raises TypeError where it holds integers."""
    return [bytes_of({key: value}, field) for key, value in values if key == field]


def merged(parts: Iterable[bytes]) -> Message:
    """The fields of a message that comes in parts: the last value of each."""
    return {field: value for part in parts for field, value in fields(part)}


def bytes_of(message: Message, field: int, default: bytes = b"") -> bytes:
    """A field of bytes. Raises TypeError for an integer."""
    value = message.get(field, default)
    if not isinstance(value, bytes):
        raise TypeError(f"field {field} is an integer")
    return value


def integer_of(message: Message, field: int, default: int) -> int:
    """A field of an integer. Raises TypeError for bytes."""
    value = message.get(field, default)
    if not isinstance(value, int):
        raise TypeError(f"field {field} is no integer")
    return value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An integer of seven bits a byte, lowest first, and the place after it."""
    value = shift = 0
    while data[at] > 127:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
    return value | data[at] << shift, at + 1
