"""Rows of files of tf.Example records, TFRecord and ArrayRecord, read without TensorFlow."""

import functools
import struct
from collections.abc import Callable, Iterator
from typing import IO

import numpy as np

from train import UserError
from train.data.sources.files import Reader, Row
from train.data.sources.opening import is_url, opened

# Records of an ArrayRecord file that are read together.
_TOGETHER = 256

# What is added to the rotated CRC-32C of a TFRecord, and the polynomial of CRC-32C (Castagnoli), bits reversed.
_MASK, _POLYNOMIAL = 0xA282EAD8, 0x82F63B78

# The kinds of values on the wire of Protocol Buffers.
_VARINT, _EIGHT_BYTES, _SIZED, _FOUR_BYTES = 0, 1, 2, 5


def tfrecord_rows(path: str, columns: Reader) -> Iterator[Row]:
    """The rows of a TFRecord file. Raises UserError for a file that is damaged, or lacks a feature."""
    with opened(path) as file:
        for index, record in enumerate(_framed(file, path), start=1):
            yield columns.checked(_row(record, columns, f"{path}, record {index}"), f"{path}, record {index}")


def array_record_rows(path: str, columns: Reader) -> Iterator[Row]:
    """The rows of an ArrayRecord file. Raises UserError as `tfrecord_rows` does."""
    try:
        from array_record.python.array_record_module import ArrayRecordReader
    except ImportError as error:
        raise UserError(f"{path} needs pip install array_record to be read") from error
    if is_url(path):
        raise UserError(f"{path}: array_record opens no URLs; copy the file, or mount the bucket")
    with opened(path):  # says what is wrong with the path
        pass
    try:
        reader = ArrayRecordReader(path)
        count = reader.num_records()
        if not reader.ok():
            raise ValueError("it has no end of its own")
        for first in range(0, count, _TOGETHER):
            for index, record in enumerate(reader.read(first, min(first + _TOGETHER, count)), start=first + 1):
                yield columns.checked(_row(record, columns, f"{path}, record {index}"), f"{path}, record {index}")
    except (RuntimeError, ValueError, IndexError) as error:
        fault = (str(error).splitlines() or ["?"])[0]
        raise UserError(f"{path} is damaged, or no ArrayRecord file ({fault}); make it again") from error


def _framed(file: IO[bytes], path: str) -> Iterator[bytes]:
    """The records of a TFRecord file: each has its length, 64 bits, the CRC of that, its bytes, and their CRC."""
    while head := file.read(12):
        fault = UserError(f"{path} is damaged, or no TFRecord file; make it again")
        if len(head) < 12:
            raise fault
        length, crc = struct.unpack("<QI", head)
        if crc != masked_crc(head[:8]):
            raise fault
        record = file.read(length)
        if len(record) < length or file.read(4) != struct.pack("<I", masked_crc(record)):
            raise fault
        yield record


def masked_crc(data: bytes) -> int:
    """The CRC-32C of bytes, as TFRecord writes it."""
    crc = _crc32c()(data)
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


@functools.cache
def _crc32c() -> Callable[[bytes], int]:
    """CRC-32C: that of the package google-crc32c, which comes with gcsfs, or one that takes a byte at a time."""
    try:
        import google_crc32c
    except ImportError:
        return crc_by_bytes
    return google_crc32c.value  # type: ignore[no-any-return]


def crc_by_bytes(data: bytes) -> int:
    """CRC-32C."""
    crc, table = 0xFFFFFFFF, _table()
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


@functools.cache
def _table() -> list[int]:
    """What eight shifts make of every byte."""
    rests = list(range(256))
    for _ in range(8):
        rests = [rest >> 1 ^ (_POLYNOMIAL if rest & 1 else 0) for rest in rests]
    return rests


def _row(record: bytes, columns: Reader, where: str) -> Row:
    """The features of a tf.Example that a task reads, and the names of all."""
    try:
        features = _features(memoryview(record))
    except (ValueError, IndexError) as error:
        raise UserError(f"{where} is no tf.Example ({error}); write such records") from error
    wanted = {*columns.texts, *columns.labels}
    return {
        name: _plain(_values(feature), f"{where}, {name}") for name, feature in features.items() if name in wanted
    } | {name: "" for name in features if name not in wanted}


def _features(example: memoryview) -> dict[str, memoryview]:
    """The features of a tf.Example, not parsed yet, by name: Example.features.feature is a map."""
    by_name: dict[str, memoryview] = {}
    for features in _members(example, 1):
        for entry in _members(features, 1):
            name, value = [*_members(entry, 1)], [*_members(entry, 2)]
            if name:
                by_name[str(name[0], "utf-8")] = value[0] if value else memoryview(b"")
    return by_name


def _values(feature: memoryview) -> list[bytes] | list[float] | list[int]:
    """The values of a feature: bytes_list, float_list or int64_list."""
    for kind, _, values in _fields(feature):
        if kind == 1:
            return [bytes(value) for value in _members(values, 1)]
        numbers = [(wire, value) for field, wire, value in _fields(values) if field == 1]
        if kind == 2:
            return [float(value) for _, packed in numbers for value in np.frombuffer(packed, "<f4")]
        return [value for wire, part in numbers for value in ([_signed(part)] if wire == _VARINT else _varints(part))]
    return []


def _plain(values: list[bytes] | list[float] | list[int], where: str) -> object:
    """One value as itself, several as a list; bytes are text."""
    try:
        plain = [value.decode() if isinstance(value, bytes) else value for value in values]
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is not UTF-8 (byte {error.start}); choose another feature") from error
    return plain[0] if len(plain) == 1 else plain


def _members(message: memoryview, field: int) -> Iterator[memoryview]:
    """The members of a message under a field: texts, bytes or messages."""
    return (value for name, wire, value in _fields(message) if name == field and wire == _SIZED)


def _fields(message: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """The fields of a message of Protocol Buffers: name, kind on the wire, and bytes. Raises ValueError, IndexError."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        wire = tag & 7
        if wire == _VARINT:
            end = _varint(message, place)[1]
        elif wire == _SIZED:
            size, place = _varint(message, place)
            end = place + size
        elif wire in (_EIGHT_BYTES, _FOUR_BYTES):
            end = place + (8 if wire == _EIGHT_BYTES else 4)
        else:
            raise ValueError(f"a field of kind {wire}")
        if end > len(message):
            raise ValueError("it ends in the middle")
        yield tag >> 3, wire, message[place:end]
        place = end


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """An integer of seven bits a byte, and the place behind it."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
        if shift > 63:
            raise ValueError("an integer of more than 64 bits")


def _varints(packed: memoryview) -> Iterator[int]:
    """Integers, one behind the other."""
    place = 0
    while place < len(packed):
        _, end = _varint(packed, place)
        yield _signed(packed[place:end])
        place = end


def _signed(varint: memoryview) -> int:
    """A signed integer of 64 bits."""
    value = _varint(varint, 0)[0]
    return value - (1 << 64) if value >> 63 else value
