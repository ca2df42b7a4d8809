"""Checksums, by which damaged files are noticed: CRC-32, which finds every change within 32 bits."""

import os
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

# Bytes under one checksum: threads share the pieces of a file. Bytes of a read: they fit in the cache of a core.
PIECE, _READ = 32 << 20, 1 << 20


class FilePiece(NamedTuple):
    """The bytes of a file from `start`, at most PIECE of them."""

    path: Path
    start: int


def pieces(path: Path) -> list[FilePiece]:
    """The pieces of a file; an empty file is one piece."""
    return [FilePiece(path, start) for start in range(0, max(path.stat().st_size, 1), PIECE)]


def of_bytes(data) -> str:
    """The checksum of bytes, as eight hexadecimal digits."""
    return f"{zlib.crc32(data):08x}"


def of_pieces(parts: Sequence[FilePiece]) -> list[str]:
    """The checksum of every piece; threads share them, for neither reading nor computing holds the interpreter."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(_of_piece, parts))


def _of_piece(piece: FilePiece) -> str:
    crc, left = 0, PIECE
    with open(piece.path, "rb", buffering=0) as file:
        file.seek(piece.start)
        buffer = memoryview(bytearray(max(1, min(_READ, os.fstat(file.fileno()).st_size))))
        while left and (count := file.readinto(buffer[:left])):
            crc = zlib.crc32(buffer[:count], crc)
            left -= count
    return f"{crc:08x}"
