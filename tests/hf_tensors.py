"""Weight files built by hand, byte by byte."""

import json
import struct
from pathlib import Path

import numpy as np


def pack(header, data=b"", length=None) -> bytes:
    """The bytes of a safetensors file; a header may be any JSON or bytes."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype="U8", shape=(4,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def fill(folder: Path, **files: bytes) -> Path:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def entries(arrays):
    return [(name, array.dtype, array.shape, lambda array=array: array) for name, array in arrays.items()]


def assert_same(tensors, arrays):
    assert set(tensors) == set(arrays)
    for name, array in arrays.items():
        assert (tensors[name].dtype, tensors[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(tensors[name], array)
