"""Hugging Face weight folders as memory-mapped numpy arrays, and back.

A safetensors file is the length of its header in 8 bytes, the header (JSON, name -> dtype, shape, data_offsets) and the
tensors without holes (https://github.com/huggingface/safetensors). All is checked before a tensor is touched; a fault
is a ValueError of one sentence.
"""

import abc
import json
import math
import mmap
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict, TypeGuard

import ml_dtypes
import numpy as np

from tfm.options import json_text
from tfm.options.json_text import Json

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
NUMPY_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}
DTYPES = {code: np.dtype(dtype) for code, dtype in NUMPY_TYPES.items()}
HEADER_BYTES = 100 * 1000**2  # the limit of the reference implementation
POINTER = b"version https://git-lfs"  # what git without LFS leaves in the place of a large file
AGAIN = "it is damaged: download it again"
PULL = "it is a Git LFS pointer: run `git lfs pull` in its folder"
CONVERT = "AutoModel.from_pretrained(folder).save_pretrained(folder, safe_serialization=True)"
# Name, dtype and shape of a tensor, and the function that makes it.
Entry = tuple[str, np.dtype, Sequence[int], Callable[[], np.ndarray]]


class HeaderEntry(TypedDict):
    """A tensor in the header of a file."""

    dtype: str
    shape: list[int]
    data_offsets: list[int]


class Weights(dict[str, np.ndarray], abc.ABC):
    """The weights of a folder: name -> read-only array."""

    files: list[Path]

    def like(self, name: str) -> np.ndarray:
        """An array of the shape and the dtype of a tensor, which is not read."""
        return self[name]

    @abc.abstractmethod
    def release(self, name: str) -> None:
        """Frees the memory of a tensor where it can be read again."""


class Tensors(Weights):
    """The weights of a folder of safetensors; arrays lie in the files and are read from disk as they are used.

    Raises ValueError if a file is faulty.
    """

    def __init__(self, folder: str | Path):
        files = _files(Path(folder))
        for path, listed in files.items():
            views = read_file(path)
            for name in listed - views.keys():
                raise ValueError(
                    f"{path} does not hold tensor {name!r}, which {INDEX} beside it lists there; download both again"
                )
            for name in views.keys() & self.keys():
                raise ValueError(
                    f"tensor {name!r} is in {path} and in another file of {INDEX}; "
                    "remove the one that does not belong there"
                )
            self.update(views)
        self.files = list(files)

    @property
    def bytes(self) -> int:
        """Size of all tensors."""
        return sum(view.nbytes for view in self.values())

    def release(self, name: str) -> None:
        """Drops the pages of a tensor from memory; the array stays valid, since the file is read again.

        A model larger than memory can so be read tensor by tensor.
        """
        data = self[name].base
        if self[name].size and isinstance(data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            start = self[name].ctypes.data - np.frombuffer(data, np.uint8).ctypes.data
            page = start % mmap.PAGESIZE  # what a neighbour has on this page is read again, too
            data.madvise(mmap.MADV_DONTNEED, start - page, page + self[name].nbytes)


def write(path: str | Path, entries: Sequence[Entry], metadata: dict[str, str] | None = None) -> None:
    """Writes entries (name, dtype, shape, make) into a file, which appears once it is complete.

    One array at a time is made. Raises ValueError for an array that is not what its entry says.
    """
    path = Path(path)
    entries = sorted(entries, key=lambda entry: -np.dtype(entry[1]).itemsize)  # widest first: all lie aligned
    header = {"__metadata__": {"format": "pt"} if metadata is None else metadata, **_header(entries)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name, dtype, shape, make in entries:
                array = np.asarray(make())
                if (array.shape, array.dtype) != (tuple(shape), np.dtype(dtype)):
                    declared = f"{np.dtype(dtype)} {tuple(shape)}"
                    raise ValueError(f"tensor {name!r} is {array.dtype} {array.shape}; it was declared {declared}")
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
                del array  # or it would still be there while the next one is made
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def gguf_file(folder: Path) -> Path | None:
    """The GGUF file of a folder that has no other weights. Raises ValueError where there are several."""
    files = sorted(folder.glob("*.gguf"))
    if not files or any(folder.glob("*.safetensors")):
        return None
    if len(files) > 1:
        raise ValueError(f"{folder} has {files[0].name}, {files[1].name}; leave the one that is meant")
    return files[0]


def write_folder(folder: str | Path, entries: Sequence[Entry], shard_bytes: int = 5 * 1000**3) -> None:
    """Writes entries as `write` does into model.safetensors, or into shards and an index.

    An earlier save, and its views, stay until this one is complete.
    """
    shards: list[list[Entry]] = [[]]
    first = total = 0
    for entry, fields in zip(entries, _header(entries).values(), strict=True):
        begin, total = fields["data_offsets"]
        if shards[-1] and total - first > shard_bytes:
            shards.append([])
            first = begin
        shards[-1].append(entry)
    names = (
        [f"model-{n:05}-of-{len(shards):05}.safetensors" for n in range(1, len(shards) + 1)] if shards[1:] else [SINGLE]
    )
    Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as partial:
        for name, shard in zip(names, shards, strict=True):
            write(Path(partial, name), shard)
        if shards[1:]:
            weight_map = {entry[0]: name for name, shard in zip(names, shards, strict=True) for entry in shard}
            Path(partial, INDEX).write_text(
                json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2)
            )
        for stale in (
            Path(folder, SINGLE),
            Path(folder, INDEX),
            *Path(folder).glob("model-?????-of-?????.safetensors"),
        ):
            stale.unlink(missing_ok=True)
        for name in sorted(os.listdir(partial)):  # the index is last: shards without it are no model
            os.replace(Path(partial, name), Path(folder, name))


def _files(folder: Path) -> dict[Path, set[str]]:
    """The weight files of a folder, each with the tensors that an index says are there."""
    if not folder.is_dir():
        fault = "is a file" if folder.exists() else "does not exist"
        raise ValueError(f"{folder} {fault}; give a folder with {SINGLE} (download it)")
    if os.path.isfile(folder / SINGLE):
        return {folder / SINGLE: set()}
    if os.path.isfile(folder / INDEX):
        names = _object(folder / INDEX, (folder / INDEX).read_bytes()).get("weight_map")
        if not isinstance(names, dict) or not names:
            raise ValueError(f"{folder / INDEX} has no weight_map from tensors to files; {AGAIN}")
        listed: dict[Path, set[str]] = {}
        for name, file in names.items():
            if not isinstance(file, str) or set(file) & set("/\\:") or not file.endswith(".safetensors"):
                raise ValueError(
                    f"{folder / INDEX} names {file!r}; correct that: only .safetensors files beside it are read"
                )
            if not os.path.isfile(folder / file):
                raise ValueError(
                    f"{folder / INDEX} names {file!r}, which is missing beside it; download that file, too"
                )
            listed.setdefault(folder / file, set()).add(name)
        return dict(sorted(listed.items()))
    pickles = sorted(path.name for path in folder.iterdir() if path.suffix in {".bin", ".pt", ".pth", ".ckpt"})
    if pickles:
        fault = f"{folder} holds only pickle checkpoints ({pickles[0]}), and reading a pickle runs the code in it"
        raise ValueError(
            f"{fault}; convert it once, in an environment that has torch and trusts the file, with {CONVERT}"
        )
    raise ValueError(f"{folder} holds no weights; it needs {SINGLE}, or {INDEX} and the files it names")


def read_file(path: Path) -> dict[str, np.ndarray]:
    """A safetensors file -> views of its tensors, in the order in which they lie there.

    Raises ValueError as `Tensors` does.
    """
    if not path.is_file():
        raise ValueError(f"{path} does not exist; download it, too")
    with path.open("rb") as file:
        head, size = file.read(len(POINTER)), os.fstat(file.fileno()).st_size
        header_bytes, limit = int.from_bytes(head[:8], "little"), min(size - 8, HEADER_BYTES)
        if head == POINTER:
            raise ValueError(f"{path} holds no tensors; {PULL}")
        if size < 8:
            raise ValueError(f"{path} has {size} bytes, too few for a safetensors file; {AGAIN}")
        if header_bytes > limit:
            raise ValueError(
                f"{path} announces a header of {header_bytes} bytes, more than {limit}; "
                f"it is not safetensors, or {AGAIN}"
            )
        start = 8 + header_bytes
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    header = _object(path, data[8:start])
    entries = sorted(_header_entry(path, name, header[name]) for name in header if name != "__metadata__")
    end = 0
    for begin, stop, name, *_ in entries:
        if begin != end:
            raise ValueError(
                f"{path} has a hole or an overlap of {abs(begin - end)} bytes before tensor {name!r}; {AGAIN}"
            )
        end = stop
    if start + end != size:
        raise ValueError(
            f"{path} has {abs(start + end - size)} bytes too {'few' if start + end > size else 'many'}; {AGAIN}"
        )
    return {name: np.ndarray(shape, dtype, data, start + begin) for begin, _, name, dtype, shape in entries}


def _object(path: Path, text: bytes) -> dict[str, Json]:
    """The JSON object that a file holds or begins with."""
    try:
        return json_text.parse_object(json_text.decode_text(text, str(path)), str(path))
    except ValueError:
        raise ValueError(
            f"the JSON of {path} cannot be read as an object; {PULL if text.startswith(POINTER) else AGAIN}"
        ) from None


def _header_entry(path: Path, name: str, fields: Json) -> tuple[int, int, str, np.dtype, tuple[int, ...]]:
    """An entry of a header -> begin, end, name, dtype and shape."""
    fields = fields if isinstance(fields, dict) else {}
    code, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if code not in list(DTYPES):
        raise ValueError(f"tensor {name!r} of {path} has dtype {code!r}; save it again as one of {', '.join(DTYPES)}")
    if not _is_counts(shape) or not _is_counts(offsets):
        raise ValueError(f"tensor {name!r} of {path} has a shape or data_offsets that are not lists of counts; {AGAIN}")
    size = math.prod(shape) * DTYPES[code].itemsize
    too_large = math.prod(filter(None, shape)) >= 2**60  # the limit of numpy
    if len(offsets) != 2 or offsets[1] - offsets[0] != size or too_large:
        raise ValueError(
            f"tensor {name!r} of {path} is {code} {shape}, {size} bytes, but its data_offsets are {offsets}; {AGAIN}"
        )
    return *offsets, name, DTYPES[code], tuple(shape)


def _is_counts(values: Json) -> TypeGuard[list[int]]:
    """Whether a value of a header is a list of at most 64 counts, the limit of numpy; true is none, though an int."""
    return isinstance(values, list) and len(values) <= 64 and all(type(n) is int and 0 <= n < 2**63 for n in values)


def _header(entries: Sequence[Entry]) -> dict[str, HeaderEntry]:
    """The header of entries that follow each other."""
    codes = {dtype: code for code, dtype in DTYPES.items()}
    header: dict[str, HeaderEntry] = {}
    end = 0
    for name, dtype, shape, _ in entries:
        if name in header or name == "__metadata__":
            raise ValueError(f"tensor name {name!r} is taken; give each tensor a name of its own")
        if np.dtype(dtype) not in codes:
            raise ValueError(
                f"tensor {name!r} has dtype {np.dtype(dtype)}; cast it to one of {', '.join(map(str, codes))}"
            )
        begin, end = end, end + math.prod(shape) * np.dtype(dtype).itemsize
        header[name] = {"dtype": codes[np.dtype(dtype)], "shape": [int(n) for n in shape], "data_offsets": [begin, end]}
    return header
